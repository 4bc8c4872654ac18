"""A streamed chat with OpenAI's SDK, and the usage at its end."""

# /// script
# dependencies = ["openai"]
# ///

import os

from openai import OpenAI

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:9000/v1")
client = OpenAI(base_url=URL, api_key="none")

stream = client.chat.completions.create(
    model="demo",
    messages=[{"role": "user", "content": "What is this project?"}],
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    if chunk.usage:
        print(f"\n{chunk.usage.completion_tokens} tokens")
