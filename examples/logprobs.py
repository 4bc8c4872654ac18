"""Each token of the answer with its probability, and the two likeliest tokens in its place."""

# /// script
# dependencies = ["openai"]
# ///

import math
import os

from openai import OpenAI

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:9000/v1")
client = OpenAI(base_url=URL, api_key="none")

completion = client.chat.completions.create(
    model="demo",
    messages=[{"role": "user", "content": "Hello!"}],
    logprobs=True,
    top_logprobs=2,
    max_tokens=8,
)
for token in completion.choices[0].logprobs.content:
    likeliest = [(one.token, round(one.logprob, 2)) for one in token.top_logprobs]
    print(f"{token.token!r:10} {math.exp(token.logprob):.4f}   {likeliest}")
