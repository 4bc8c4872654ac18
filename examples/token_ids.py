"""Token ids in and out: tokenize a prompt, complete it by its ids, turn the new ids into text."""

# /// script
# dependencies = ["openai"]
# ///

import os

from openai import OpenAI

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:9000/v1")
client = OpenAI(base_url=URL, api_key="none")
server = client.with_options(base_url=URL.removesuffix("/v1"))

messages = [{"role": "user", "content": "Hello!"}]
body = {"model": "demo", "messages": messages}
prompt = server.post("/tokenize", body=body, cast_to=object)
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
print(server.post("/detokenize", body=body, cast_to=object)["prompt"])
