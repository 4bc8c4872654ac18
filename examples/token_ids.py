"""Token ids in and out: tokenize a prompt, complete it by its ids, turn the new ids into text."""

import os

import httpx
from openai import OpenAI

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:9000/v1")
SERVER = URL.removesuffix("/v1")
client = OpenAI(base_url=URL, api_key="none")

messages = [{"role": "user", "content": "Hello!"}]
prompt = httpx.post(f"{SERVER}/tokenize", json={"model": "demo", "messages": messages}).json()
print(prompt["count"], "tokens:", prompt["tokens"])

completion = client.completions.create(
    model="demo",
    prompt=prompt["tokens"],
    max_tokens=20,
    temperature=0,
    extra_body={"return_token_ids": True},
)
choice = completion.choices[0]
print("new ids:", choice.token_ids)

body = {"model": "demo", "tokens": choice.token_ids}
print(httpx.post(f"{SERVER}/detokenize", json=body).json()["prompt"])
