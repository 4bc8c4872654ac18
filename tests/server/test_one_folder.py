"""A folder with the files of Phi-3.5-mini-instruct-onnx, served by environment variables alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
import openai
import pytest

from tests.fixtures import phi_folder
from tests.fixtures.running import ARTIFACTS, alone
from tests.fixtures.stack import HANG_S, Stack, free_port

NAME = "phi-3.5-mini"
MESSAGES = [{"role": "user", "content": "Hello!"}]
LONG = 3500


@pytest.fixture(scope="module")
def phi() -> Path:
    with alone():
        return phi_folder.made(ARTIFACTS / "weights" / "Phi-3.5-mini-instruct-onnx")


@pytest.fixture(scope="module")
def one_folder(start, phi, tmp_path_factory) -> Stack:
    started = start(
        "serve",
        MODELS_FILE=None,
        PORT=None,
        ARTIFACTS_DIR=tmp_path_factory.mktemp("artifacts"),
        MODEL_PATH=phi,
        SERVER_PORT=free_port(),
        DEFAULT_MAX_TOKENS=12,
        DEFAULT_TEMPERATURE=0,
    )
    started.wait_ready(within_s=110)
    return started


@pytest.fixture
def client(one_folder) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{one_folder.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_it_chats_under_the_name_of_its_architecture_and_size(client):
    assert [model.id for model in client.models.list()] == [NAME]
    answer = client.chat.completions.create(model=NAME, messages=MESSAGES)
    assert answer.choices[0].message.content


def test_an_empty_prompt_is_the_one_token_that_begins_a_document(client):
    """The folder has a BOS token that its tokenizer does not add by itself."""
    for prompt in ("", None):
        asked = {"model": NAME, "prompt": prompt, "max_tokens": 3}
        answer = client.post("/completions", body=asked, cast_to=dict)
        assert answer["usage"]["prompt_tokens"] == 1
    counted = client.post("/../tokenize", body={"model": NAME, "prompt": ""}, cast_to=dict)
    told = client.post("/../tokenize", body={"model": NAME, "prompt": "<s>"}, cast_to=dict)
    assert counted["tokens"] == told["tokens"][:1]


def test_the_default_temperature_makes_answers_repeat(client):
    def text(**fields) -> str:
        answer = client.chat.completions.create(
            model=NAME, messages=MESSAGES, max_tokens=40, **fields
        )
        return answer.choices[0].message.content

    assert text() == text() == text(temperature=0)
    assert text(temperature=1.5, seed=1) != text()


def test_the_eleventh_request_is_told_to_come_back_and_does(client):
    """Of twenty at once, ten run; more only where the machine is so slow that some have ended."""

    def begin(_: int) -> openai.Stream | openai.RateLimitError:
        try:
            return client.chat.completions.create(
                model=NAME, messages=MESSAGES, max_tokens=LONG, stream=True
            )
        except openai.RateLimitError as error:
            return error

    with ThreadPoolExecutor(20) as pool:
        begun = list(pool.map(begin, range(20)))
    refusals = [one for one in begun if isinstance(one, openai.RateLimitError)]
    assert 0 < len(refusals) <= 10
    for one in begun:
        if isinstance(one, openai.Stream):
            one.close()
    refused = refusals[0]
    assert (refused.type, refused.code) == ("rate_limit_error", "rate_limit_exceeded")
    assert "Too many concurrent requests. Please try again later." in str(refused)
    headers = refused.response.headers
    assert int(headers["retry-after"]) >= int(headers["retry-after-ms"]) / 1000 > 0
    assert headers["x-should-retry"] == "true"
    patient = client.with_options(max_retries=5)
    assert patient.chat.completions.create(model=NAME, messages=MESSAGES).choices


def refused_start(start, folder: Path, tmp_path: Path) -> str:
    """The message of the one JSON line with which a start ends."""
    stack = start("serve", MODELS_FILE=None, MODEL_PATH=folder, ARTIFACTS_DIR=tmp_path / "a")
    assert stack.process.wait(HANG_S) == 1
    (line,) = [line for line in stack.log.read_text().splitlines() if line.startswith('{"error"')]
    error = json.loads(line)["error"]
    assert (error["type"], error["code"]) == ("server_error", "model_loading_failed")
    assert "Traceback" not in stack.log.read_text()
    return error["message"]


def test_an_engine_that_does_not_load_ends_the_start_with_its_reason(start, phi, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(phi, broken)
    graph = onnx.load(broken / phi_folder.GRAPH, load_external_data=False)
    next(node for node in graph.graph.node if node.op_type == "MatMulNBits").op_type = "Unheard"
    (broken / phi_folder.GRAPH).write_bytes(graph.SerializeToString())
    message = refused_start(start, broken, tmp_path)
    assert message.startswith(f"Failed to load model from {broken}: ")
    assert "Unheard" in message
