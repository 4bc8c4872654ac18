"""The log line of a request: which model, how many tokens, also when the client hangs up."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from proxy.app import compose
from proxy.settings import Settings
from tests.doubles.engine import FixedCatalog, ScriptedEngine, deltas
from tests.doubles.sandbox import InProcess
from tests.doubles.tokenizer import ByteTokenizer
from tests.fixtures.own_server import served

MESSAGES = [{"role": "user", "content": "hi"}]
CHAT = {"model": "demo", "messages": MESSAGES}
BEGUN = deltas("abc", finish=None)  # a prompt of 7 tokens, 4 of them cached
COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        ("/tokenize", {"prompt": "hi"}, 3),
        ("/tokenize", {"messages": MESSAGES}, len("<user>hi\n<assistant>")),
        ("/detokenize", {"tokens": [104, 105]}, 2),
        ("/v1/chat/completions/render", CHAT, len("<user>hi\n<assistant>")),
    ],
)
def test_a_tokenizer_request_is_logged_with_its_tokens(serve, path, body, tokens):
    client = serve(ScriptedEngine())
    with capture_logs() as lines:
        assert client.post(path, json=body).status_code == 200
    (line,) = [one for one in lines if one["event"] == "request"]
    assert (line["log_level"], line["path"], line["status"]) == ("info", path, 200)
    assert (line["model"], line["prompt_tokens"]) == ("demo", tokens)


async def line_of_an_abandoned(engine: ScriptedEngine, body: dict, tmp_path) -> dict:
    """A client sends the body, waits until the engine has sent all its tokens, and hangs up."""
    settings = Settings(models_file=tmp_path / "none.yaml")
    (tmp_path / "none.yaml").write_text("models: {another: {weights: w}}")
    app = compose(settings, engine, FixedCatalog(), ByteTokenizer(), InProcess())
    with capture_logs() as lines:
        async with app.router.lifespan_context(app), served(app) as (host, port):
            _, writer = await asyncio.open_connection(host, port)
            content = json.dumps(body).encode()
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}"
            )
            writer.write(f"{head}\r\n\r\n".encode() + content)
            await asyncio.wait_for(engine.given.wait(), 30)
            writer.close()
            await writer.wait_closed()
        (line,) = [one for one in lines if one["event"] == "request"]
    return line


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_an_abandoned_request_is_logged_with_the_tokens_so_far(tmp_path, stream):
    engine = ScriptedEngine(BEGUN, hangs=True)
    line = await line_of_an_abandoned(engine, {**CHAT, "stream": stream}, tmp_path)
    assert line["finish"] == "abandoned"
    assert [line[name] for name in COUNTS] == [7, 4, 3]


@pytest.mark.anyio
async def test_a_request_abandoned_before_its_first_token_has_no_counts(tmp_path):
    line = await line_of_an_abandoned(ScriptedEngine(hangs=True), CHAT, tmp_path)
    assert line["finish"] == "abandoned"
    assert not set(COUNTS) & line.keys()
