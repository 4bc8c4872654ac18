"""LiteLLM and LangChain with a key: answers, streams, and their own errors for a wrong key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.pip_target import installed
from tests.fixtures.stack import HANG_S

HERE = Path(__file__).parent
KEY = "the-one-key-of-these-clients-is-long"


@pytest.fixture(scope="module")
def locked(start, stack):
    """A proxy that wants KEY, in front of the running Triton."""
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, API_KEY=KEY)
    proxy.wait_ready()
    return proxy


@pytest.mark.parametrize(
    ("client", "error_class"),
    [("litellm", "AuthenticationError"), ("langchain", "OpenAIAuthenticationError")],
)
def test_a_client_works_with_a_key_and_raises_its_own_error_on_401(
    locked, client, error_class, tmp_path
):
    try:
        folder = installed(HERE / f"{client}.lock")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"pip cannot install {client}.lock: {error}")
    command = [sys.executable, "-W", "ignore", str(HERE / "python_clients.py")]
    done = subprocess.run(
        [*command, client, f"{locked.url}/v1", KEY],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["refused"] == [error_class, 401]
    assert told["whole"][-1] in ".!?"
    assert told["stream"] == told["whole"]
