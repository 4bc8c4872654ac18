"""A proxy with the packages of its image only, for a Triton that another command runs."""

from __future__ import annotations

import openai
import pytest

from tests.fixtures.stack import Stack

MESSAGES = [{"role": "user", "content": "Hello!"}]


@pytest.fixture(scope="module")
def remote(start, stack, tmp_path_factory) -> Stack:
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    others = tmp_path_factory.mktemp("others") / "models.yaml"
    others.write_text("models: {another: {weights: w}}")
    proxy = start(
        "proxy", module="tests.fixtures.proxy_image", TRITON_URL=target, MODELS_FILE=others
    )
    proxy.wait_ready(within_s=60)
    return proxy


def test_it_answers_as_the_proxy_beside_triton_does(remote, stack):
    def answer(one: Stack) -> str:
        with openai.OpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="demo", messages=MESSAGES, temperature=0, stream=True
            )
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert answer(remote) == answer(stack) != ""


def test_it_serves_every_model_of_that_triton(remote, stack):
    with openai.OpenAI(base_url=f"{remote.url}/v1", api_key="none") as client:
        assert {model.id for model in client.models.list()} == {"demo", "endless"}
