"""A proxy with the packages of its image only, for a Triton that another command runs."""

from __future__ import annotations

import openai

from tests.fixtures.stack import Stack

MESSAGES = [{"role": "user", "content": "Hello!"}]


def test_it_answers_as_the_proxy_beside_triton_does(start, stack, tmp_path):
    others = tmp_path / "models.yaml"
    others.write_text("models: {another: {weights: w}}")
    remote = start(
        "proxy",
        module="tests.fixtures.proxy_image",
        TRITON_URL=f"grpc://127.0.0.1:{stack.triton_grpc_port}",
        MODELS_FILE=others,
    )
    remote.wait_ready(within_s=60)

    def answer(one: Stack) -> str:
        with openai.OpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="demo", messages=MESSAGES, temperature=0, stream=True
            )
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert answer(remote) == answer(stack) != ""
