"""Images in a chat reach a real vLLM through our own ensemble: a tiny Idefics 3 of noise."""

from __future__ import annotations

import base64
import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from PIL import Image

from tests.fixtures.running import ARTIFACTS, Start, alone, build
from tests.fixtures.stack import Stack
from tests.long.vllm import own, seeing_model
from tests.long.vllm.server import WEIGHTS

pytestmark = [pytest.mark.xdist_group("own_vllm"), pytest.mark.timeout(1800)]

FOLDER = ARTIFACTS / "seeing_vllm"
MODEL, CONTEXT = "seeing", 128
NAMES = tuple(seeing_model.COLORS)


@pytest.fixture(scope="module")
def seeing(start: Start, interpreter: Path) -> Iterator[Stack]:
    weights = FOLDER / "weights"
    options = {
        "environment": str(interpreter.parents[1]),
        "dtype": "float32",
        "kv_cache_gb": 0.1,
        "max_rows": 8,
        "engine_args": {"enforce_eager": True},
    }
    entry = {"weights": str(weights), "context_length": CONTEXT, "runtime": "vllm", "vllm": options}
    with alone():
        if not (weights / "answers.json").exists():
            maker = str(seeing_model.__file__)
            subprocess.run([str(interpreter), maker, str(WEIGHTS), str(weights)], check=True)
        path = FOLDER / "models.yaml"
        path.write_text(yaml.safe_dump({"models": {MODEL: entry}}))
        build(path, FOLDER)
    stack = start("serve", MODELS_FILE=path, ARTIFACTS_DIR=FOLDER, **own.ENVIRONMENT)
    stack.wait_ready(within_s=own.START_S)
    yield stack
    stack.stop()


@pytest.fixture
def client(seeing: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{seeing.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def file(name: str) -> bytes:
    return (FOLDER / "weights" / name).read_bytes()


def ask(client: openai.OpenAI, *files: bytes, asked: str = seeing_model.ASKED, **more: Any) -> Any:
    parts: list[Any] = []
    for data in files:
        kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
        url = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": asked}]}]
    wanted = {"temperature": 0, "max_tokens": seeing_model.NEW_TOKENS, **more}
    return client.chat.completions.create(model=MODEL, messages=messages, **wanted)


def refused(client: openai.OpenAI, *files: bytes, **more: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, *files, **more)
    return error.value


@pytest.mark.parametrize("names", [(), NAMES[:1], NAMES[1:], NAMES])
def test_answers_and_usage_are_those_of_transformers(client, names):
    tokens, text = json.loads(file("answers.json"))[" ".join(names)]
    answer = ask(client, *map(file, names), logprobs=True)
    assert answer.choices[0].message.content == text
    assert answer.usage.prompt_tokens == tokens
    assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens


def test_a_stream_counts_the_tokens_of_its_images(client):
    tokens, text = json.loads(file("answers.json"))[NAMES[0]]
    options = {"include_usage": True}
    *events, last = ask(client, file(NAMES[0]), stream=True, stream_options=options)
    assert "".join(event.choices[0].delta.content or "" for event in events) == text
    assert last.usage.prompt_tokens == tokens


def test_the_name_of_the_place_in_a_callers_text_is_text(client):
    plain = ask(client, asked=f"{seeing_model.IMAGE} or not")
    assert plain.usage.prompt_tokens > ask(client, asked=" or not").usage.prompt_tokens + 1
    assert ask(client, file(NAMES[0]), asked=seeing_model.IMAGE).usage.completion_tokens


def test_an_answer_ends_where_the_images_leave_no_context(client):
    answer = ask(client, *[file(NAMES[0])] * 5, max_tokens=100, extra_body={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == CONTEXT


def test_images_without_room_and_damaged_ones_are_refused_by_name(client):
    error = refused(client, *[file(NAMES[0])] * 10)
    assert error.code == "context_length_exceeded"
    damaged = refused(client, file(NAMES[0])[:-30])
    assert "image 1 cannot be decoded" in damaged.message
    assert damaged.param == "image"
    with io.BytesIO() as large:
        Image.new("1", (8000, 8000)).save(large, "PNG")
        assert "pixels" in refused(client, large.getvalue()).message
    assert ask(client, file(NAMES[0])).choices[0].message.content


def test_the_list_of_models_says_that_it_reads_images(client):
    assert "images" in client.models.retrieve(MODEL).capabilities
