"""Structured output: the engine enforces a Pydantic model's schema, the SDK parses the answer."""

# /// script
# dependencies = ["openai", "pydantic"]
# ///

import os

from openai import OpenAI
from pydantic import BaseModel

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:9000/v1")
client = OpenAI(base_url=URL, api_key="none")


class Person(BaseModel):
    name: str
    age: int
    city: str


completion = client.chat.completions.parse(
    model="demo",
    messages=[
        {
            "role": "user",
            "content": "Extract the name, age and city as JSON: "
            "Anna Berg is 31 years old and lives in Rome.",
        }
    ],
    response_format=Person,
    temperature=0,
)
print(repr(completion.choices[0].message.parsed))
