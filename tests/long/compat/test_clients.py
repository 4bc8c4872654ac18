"""LiteLLM and LangChain with a key: answers, streams, and their own errors for a wrong key.
LangChain and the OpenAI Agents SDK over the Responses API.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.embedding_models import reference
from tests.fixtures.pip_target import installed
from tests.fixtures.stack import HANG_S

HERE = Path(__file__).parent
KEY = "the-one-key-of-these-clients-is-long"
SUNNY = "The temperature is 21 and the sky is sunny."


@pytest.fixture(scope="module")
def locked(start, stack):
    """A proxy that wants KEY, in front of the running Triton."""
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, API_KEY=KEY)
    proxy.wait_ready()
    return proxy


def run(program: str, lock: str, *arguments: str, folder: Path) -> dict:
    """What a program of this folder prints, with the packages of a lock."""
    try:
        packages = installed(HERE / f"{lock}.lock")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"pip cannot install {lock}.lock: {error}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / program), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("client", "error_class"),
    [("litellm", "AuthenticationError"), ("langchain", "OpenAIAuthenticationError")],
)
def test_a_client_works_with_a_key_and_raises_its_own_error_on_401(
    locked, client, error_class, tmp_path
):
    told = run("python_clients.py", client, client, f"{locked.url}/v1", KEY, folder=tmp_path)
    assert told["refused"] == [error_class, 401]
    assert told["whole"][-1] in ".!?"
    assert told["stream"] == told["whole"]


def test_langchain_works_over_responses(locked, tmp_path):
    arguments = ("responses", f"{locked.url}/v1", KEY)
    told = run("python_clients.py", "langchain", *arguments, folder=tmp_path)
    assert told["stream"] == told["whole"]
    assert told["tokens"] > 0
    assert told["calls"] == [[["get_weather", {"city": "Rome"}]]] * 2
    assert told["answers"] == [SUNNY, SUNNY]
    assert told["people"] == [{"name": "Tom", "age": 31}] * 2


def test_an_agents_loop_of_the_agents_sdk(locked, tmp_path):
    told = run("agents_sdk.py", "agents", f"{locked.url}/v1", KEY, folder=tmp_path)
    assert len(told) == 4
    for found in told.values():
        assert found["called"] == [
            ["get_weather", "Rome"],
            ["get_population", "Oslo"],
            ["get_weather", "Madrid"],
        ]
        assert found["answers"] == [SUNNY, "The population is 7042.", SUNNY]
    assert "raw_response_event" in told["streamed, kept"]["kinds"]


def test_langchains_embeddings_are_the_same_by_texts_and_by_token_ids(
    embedding_stack, embedding_folders, tmp_path
):
    """It pads no ids, and adds the special tokens itself."""
    bert = embedding_folders / "bert"
    url = f"{embedding_stack.url}/v1"
    told = run("python_clients.py", "langchain", "embeddings", url, str(bert), folder=tmp_path)
    expected = reference(bert, "bread and milk", "where is the station")
    assert np.abs(np.array(told["texts"]) - expected).max() < 1e-4
    assert np.abs(np.array(told["query"]) - expected[0]).max() < 1e-4
    assert np.array(told["ids"]).shape == expected.shape
