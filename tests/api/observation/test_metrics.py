"""/metrics of the composed application: it agrees with whoever sends the requests, and nobody can
make it grow without bound.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from proxy.domain.errors import EngineFailed
from tests.api.formats import error_of
from tests.api.observation.paced_engine import PacedEngine
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.metric_samples import MetricSamples, quantile_of

CHAT = "/v1/chat/completions"
HI = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
FRONT = {"client_name_header": "X-Client-Name", "trusted_fronts": ["192.0.2.1"]}
KEY = "the-key-of-prometheus-in-these-tests"
TENANTS = 4


def composed(engine, **settings) -> Any:
    catalog = FixedCatalog(facts=replace(FACTS, context_length=4096))
    return application(engine, catalog, metrics_key=KEY, **FRONT, **settings)


async def metrics(app: Any, **headers: str) -> MetricSamples:
    call = await Call(
        app, "/metrics", b"", {"authorization": f"Bearer {KEY}", **headers}, method="GET"
    ).done()
    assert call.status == 200, call.body
    return MetricSamples(call.body.decode())


@pytest.mark.parametrize(
    ("path", "body", "model", "reason"),
    [
        (CHAT, {**HI, "model": "unknown"}, "", "model_not_found"),
        (CHAT, {**HI, "temperature": 9}, "", "invalid_parameter"),
        ("/v1/nothing", HI, "", "unknown_url"),
        (CHAT, HI, "demo", "internal_error"),
    ],
)
def test_a_refused_request_is_counted_by_its_code(serve, path, body, model, reason):
    client = serve(ScriptedEngine(error=EngineFailed("broken")))
    response = client.post(path, json=body)
    assert error_of(response)["code"] == reason
    found = MetricSamples(client.get("/metrics").text)
    assert found.value("proxy_rejections_total", model=model, reason=reason) == 1
    assert found.total("proxy_rejections_total") == 1


@pytest.mark.parametrize("why_away", [None, "away"])
def test_neither_an_answer_nor_a_health_check_that_fails_is_a_rejection(serve, why_away):
    client = serve(ScriptedEngine(deltas("a")), catalog=FixedCatalog(why_away))
    status = 503 if why_away else 200
    assert client.get("/health/ready").status_code == client.get("/ping").status_code == status
    if why_away is None:
        assert client.post(CHAT, json=HI).status_code == 200
    assert MetricSamples(client.get("/metrics").text).total("proxy_rejections_total") == 0


OPEN, TEXT = "application/openmetrics-text", "text/plain"
ACCEPTED = {
    OPEN: OPEN,
    "Application/OpenMetrics-Text ; q=0.5": OPEN,
    # as Prometheus sends it
    f"{OPEN};version=1.0.0;q=0.6,{OPEN};version=0.0.1;q=0.5,{TEXT};q=0.3,*/*;q=0.2": OPEN,
    f"{OPEN};q=1, {TEXT};q=1": OPEN,
    f"{TEXT};q=0.4, {OPEN}": OPEN,
    f"{OPEN};q=0, {OPEN};version=1.0.0": OPEN,
    f"{OPEN};q=0": TEXT,
    f"{OPEN};version=1.0.0; Q=0.000": TEXT,
    f"{TEXT}, {OPEN};q=0.": TEXT,
    f"{TEXT};q=1, {OPEN};q=0.9": TEXT,
    f"x{OPEN}": TEXT,
    f'{TEXT};note="{OPEN}"': TEXT,
    "*/*": TEXT,
    "": TEXT,
}


def test_metrics_come_in_the_form_that_accept_prefers(serve):
    client = serve(ScriptedEngine(deltas("a")))
    for accept, form in ACCEPTED.items():
        response = client.get("/metrics", headers={"accept": accept})
        assert response.headers["content-type"].startswith(f"{form}; version=1"), accept
        assert response.text.endswith("# EOF\n") is (form == OPEN)
    headers = [("accept", TEXT), ("accept", OPEN)]
    assert client.get("/metrics", headers=headers).text.endswith("# EOF\n")


@pytest.mark.anyio
async def test_nothing_that_callers_send_makes_series_without_bound():
    """Two thousand requests, each with its own tenant, model, path, method and fields."""
    app = composed(ScriptedEngine(deltas("a")), metrics_tenants=3)

    async def attack(app: Any, numbers: range) -> None:
        for number in numbers:
            for call in calls(app, number):
                await call.done()

    async with started(app):
        await attack(app, range(50))
        await metrics(app)
        before = await metrics(app)
        await attack(app, range(50, 500))
        after = await metrics(app)
    responses = "proxy_http_responses_total"
    assert after.total(responses) - before.total(responses) == 4 * 450 + 1
    assert after.values.keys() == before.values.keys()
    tenants = {"front-0", "front-1", "front-2", "other"}
    assert after.labels("proxy_tenant_prompt_tokens_total") == tenants
    assert not [one for one in after.values if "evil" in str(one)]


def calls(app: Any, number: int) -> list[Call]:
    """Four requests."""
    evil = {"x-client-name": f"front-{number}", "user-agent": f"evil-{number}"}
    fields = {
        "priority": number,
        "user": f"evil-{number}",
        "metadata": {f"evil-{number}": f"evil-{number}"},
        "prompt_cache_key": f"evil-{number}",
    }
    return [
        Call(app, CHAT, {**HI, **fields}, evil),
        Call(app, CHAT, {**HI, "model": f"evil-{number}"}, evil),
        Call(app, f"/evil-{number}/v1", HI, evil),
        Call(
            app, f"/v1/models/evil-{number}", b"", evil, method=("GET", f"EVIL{number}")[number % 2]
        ),
    ]


@dataclass
class Seen:
    """What the load generator saw of one request. ttft_s: None without streaming."""

    outcome: str
    tenant: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ttft_s: float | None = None
    duration_s: float | None = None


class LoadGenerator:
    """Sends requests, a few at a time, and keeps what it saw."""

    def __init__(self, app: Any, *, at_once: int = 8) -> None:
        self.seen: list[Seen] = []
        self._app = app
        self._places = asyncio.Semaphore(at_once)

    async def send(self, number: int) -> None:
        ways: list[Callable[[str, random.Random], Awaitable[Seen]]]
        ways = [*[self._stream] * 7, self._whole, self._unknown, self._left]
        rng, tenant = random.Random(number), f"front-{number % TENANTS}"
        async with self._places:
            self.seen.append(await ways[number % len(ways)](tenant, rng))

    def _call(self, tenant: str, body: dict[str, Any]) -> Call:
        return Call(self._app, CHAT, body, {"x-client-name": tenant})

    async def _stream(self, tenant: str, rng: random.Random) -> Seen:
        pace = paced(rng)
        began = time.perf_counter()
        call = self._call(tenant, body(pace, stream=True))
        await call.until(has_text)
        ttft_s = time.perf_counter() - began
        await call.done()
        duration_s = time.perf_counter() - began
        *_, usage = (json.loads(each[6:]) for each in call.events if b"[DONE]" not in each)
        return Seen(
            *(pace["finish"], tenant, usage["usage"]["prompt_tokens"]),
            *(usage["usage"]["completion_tokens"], ttft_s, duration_s),
        )

    async def _whole(self, tenant: str, rng: random.Random) -> Seen:
        began = time.perf_counter()
        call = await self._call(tenant, body(paced(rng))).done()
        duration_s = time.perf_counter() - began
        [choice], usage = call.json()["choices"], call.json()["usage"]
        tokens = usage["prompt_tokens"], usage["completion_tokens"]
        return Seen(choice["finish_reason"], tenant, *tokens, duration_s=duration_s)

    async def _unknown(self, tenant: str, rng: random.Random) -> Seen:
        call = await self._call(tenant, {**HI, "model": "unknown"}).done()
        return Seen(call.json()["error"]["code"], tenant)

    async def _left(self, tenant: str, rng: random.Random) -> Seen:
        """The client leaves after the first token, and the engine would give many more."""
        pace = {**paced(rng), "tokens": 5, "gap_s": 600.0}
        began = time.perf_counter()
        call = self._call(tenant, body(pace, stream=True))
        await call.until(has_text)
        ttft_s = time.perf_counter() - began
        await call.disconnect()
        duration_s = time.perf_counter() - began
        return Seen("abandoned", tenant, pace["prompt_tokens"], 1, ttft_s, duration_s)


def paced(rng: random.Random) -> dict[str, Any]:
    return {
        "queue_s": rng.choice([0.0, 0.0, 0.03]),
        "first_s": rng.choice([0.02, 0.03, 0.06, 0.15]),
        "gap_s": rng.choice([0.01, 0.03]),
        "tokens": rng.randint(2, 5),
        "prompt_tokens": rng.randint(1, 900),
        "finish": rng.choice(["stop", "length"]),
    }


def body(pace: dict[str, Any], **fields: object) -> dict[str, Any]:
    messages = [{"role": "user", "content": json.dumps(pace)}]
    options = {"stream_options": {"include_usage": True}} if "stream" in fields else {}
    return {"model": "demo", "messages": messages, **options, **fields}


def has_text(call: Call) -> bool:
    return b'"content":"a"' in call.body


@pytest.mark.anyio
async def test_it_agrees_with_the_load_generator_of_many_requests():
    app = composed(PacedEngine(), metrics_tenants=TENANTS)
    async with started(app):
        load = LoadGenerator(app)
        for number in range(20):  # what is done once delays the first ones, each by itself
            await load.send(number)
        await asyncio.gather(*(load.send(number) for number in range(20, 400)))
        found = await metrics(app)
    assert_counts(found, load.seen)
    for name, field in (("time_to_first_token", "ttft_s"), ("request_duration", "duration_s")):
        family = f"proxy_{name}_seconds"
        for quantile in (0.5, 0.9, 0.99):
            measured = [each for one in load.seen if (each := getattr(one, field)) is not None]
            own_s = quantile_of(measured, quantile)
            ours = found.bucket_of_quantile(quantile, family, model="demo")
            theirs = found.bucket_of(own_s, family, model="demo")
            assert abs(ours - theirs) <= 1, (family, quantile, own_s)


def assert_counts(found: MetricSamples, seen: list[Seen]) -> None:
    """Every count is exactly the load generator's."""
    outcomes = Counter(one.outcome for one in seen)
    unknown = outcomes.pop("model_not_found")
    assert found.value("proxy_rejections_total", model="", reason="model_not_found") == unknown
    assert found.total("proxy_rejections_total") == unknown
    for outcome, count in outcomes.items():
        assert found.value("proxy_requests_total", model="demo", outcome=outcome) == count
    begun = sum(outcomes.values())
    assert found.total("proxy_requests_total") == begun
    assert found.value("proxy_requests_active", model="demo") == 0
    for family in ("time_to_first_token", "request_duration", "request_queue_time", "queue_time"):
        assert found.value(f"proxy_{family}_seconds_count", model="demo") == begun, family
    for family in ("prefill_time", "decode_time", "time_per_output_token"):
        ended = begun - outcomes["abandoned"]
        assert found.value(f"proxy_{family}_seconds_count", model="demo") == ended, family
    gaps = sum(one.completion_tokens for one in seen) - begun  # the engine sends each token alone
    assert found.value("proxy_inter_token_latency_seconds_count", model="demo") == gaps
    for kind in ("prompt", "completion"):
        tokens = sum(getattr(one, f"{kind}_tokens") for one in seen)
        assert found.value(f"proxy_{kind}_tokens_total", model="demo") == tokens
        assert found.value(f"proxy_request_{kind}_tokens_sum", model="demo") == tokens
        for tenant in {one.tenant for one in seen}:
            own = sum(getattr(one, f"{kind}_tokens") for one in seen if one.tenant == tenant)
            assert found.value(f"proxy_tenant_{kind}_tokens_total", tenant=tenant) == own
