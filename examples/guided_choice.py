"""The answer is one of the given texts, whatever the model would like to say."""

# /// script
# dependencies = ["openai"]
# ///

import os

from openai import OpenAI

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:9000/v1")
client = OpenAI(base_url=URL, api_key="none")

completion = client.chat.completions.create(
    model="demo",
    messages=[{"role": "user", "content": "Is Rome a city?"}],
    extra_body={"guided_choice": ["yes", "no", "maybe"]},
)
print(completion.choices[0].message.content)
