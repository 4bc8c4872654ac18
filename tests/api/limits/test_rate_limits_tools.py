"""Limits count each round of the server's tools; OpenAI's SDK waits for Retry-After."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import openai
import pytest
from starlette.testclient import TestClient

from proxy.domain.identity import Limits
from tests.api.conftest import Policy
from tests.api.tools.test_server_tools import call, rounds
from tests.api.tools.test_tools import CATALOG, CHAT, HI
from tests.doubles.engine import FixedCatalog, ScriptedEngine
from tests.doubles.usage import KeptUsage
from tests.fixtures.application import application
from tests.fixtures.limits import AsCaller, caller

FIRST = f"Let me see. {call('weather')}"
LONG = FixedCatalog(facts=replace(CATALOG.facts, context_length=4_000))
BODY = {"model": "demo", "messages": HI, "max_tokens": 120}


class Serving:
    def __init__(self, stack: ExitStack, policy: Policy) -> None:
        self._stack = stack
        self._policy = policy
        self.usage = KeptUsage()

    def __call__(self, engine: ScriptedEngine, limits: Limits) -> TestClient:
        app = application(engine, LONG, usage=self.usage, models_file=self._policy())
        return self._stack.enter_context(TestClient(AsCaller(app, caller(key=limits))))


@pytest.fixture
def serving(policy: Policy) -> Iterator[Serving]:
    with ExitStack() as stack:
        yield Serving(stack, policy)


def test_every_round_of_server_tools_counts(serving: Serving):
    engine = rounds(FIRST, "12 degrees.")
    client = serving(engine, Limits(tokens_per_day=10_000))
    assert client.post(CHAT, json=BODY).status_code == 200
    (row,) = serving.usage.rows
    output = len(FIRST) + 1 + len("12 degrees.") + 1
    assert (len(engine.requests), row.prompt_tokens, row.output_tokens) == (2, 14, output)
    left = client.get("/v1/models").headers["x-ratelimit-remaining-tokens"]
    assert int(left) == 10_000 - 14 - output


def test_a_later_round_that_exceeds_a_limit_is_refused_and_what_was_used_counts(serving: Serving):
    """The first prompt has 26 bytes; the second has the call and its result, too."""
    engine = rounds(FIRST, "12 degrees.")
    client = serving(engine, Limits(input_tokens_per_minute=60))
    refused = client.post(CHAT, json=BODY)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] in ("rate_limit_exceeded", "request_exceeds_limit")
    assert len(engine.requests) == 1
    assert client.get("/v1/models").headers["x-ratelimit-remaining-tokens"] == "53"


def test_openai_s_sdk_waits_as_the_headers_say_and_succeeds(serving: Serving):
    http = serving(rounds("hello"), Limits(requests_per_second=2))
    client = openai.OpenAI(api_key="k", base_url="http://testserver/v1", http_client=http)
    begin = time.monotonic()
    for _ in range(3):
        answer = client.chat.completions.create(**BODY)
        assert answer.choices[0].message.content == "hello"
    assert time.monotonic() - begin >= 1.0


def test_openai_s_sdk_gives_up_at_once_where_waiting_takes_too_long(serving: Serving):
    engine = rounds("hello")
    client = openai.OpenAI(
        api_key="k",
        base_url="http://testserver/v1",
        http_client=serving(engine, Limits(requests_per_day=1)),
    )
    client.chat.completions.create(**BODY)
    with pytest.raises(openai.RateLimitError, match="requests_per_day"):
        client.chat.completions.create(**BODY)
    assert len(engine.requests) == 1
