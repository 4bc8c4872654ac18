"""`metadata.tenant_id` names the tenant where there are no keys, and changes nothing else."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.api.formats import BOTH, CHAT, CHAT_BODY, error_of
from tests.api.queue.test_queue import Stand, standing
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.asgi_calls import Call
from tests.fixtures.metric_samples import MetricSamples

NAMED = {"tenant_from_metadata": True}
TENANTS = "proxy_tenant_prompt_tokens_total"


def of(tenant: str, **fields: object) -> dict:
    return {"metadata": {"tenant_id": tenant}, **fields}


def line_of(client, path: str, body: dict) -> dict:
    with capture_logs() as lines:
        assert client.post(path, json=body).status_code == 200
    (line,) = (one for one in lines if one["event"] == "request")
    return line


@BOTH
def test_logs_and_metrics_have_the_name(serve, path, body):
    client = serve(ScriptedEngine(deltas("a")), **NAMED)
    assert line_of(client, path, {**body, **of("acme")})["tenant"] == "acme"
    assert "tenant" not in line_of(client, path, body)
    found = MetricSamples(client.get("/metrics").text)
    assert found.labels(TENANTS) == {"acme", "default"}


def test_by_default_it_is_a_note(serve):
    client = serve(ScriptedEngine(deltas("a")))
    line = line_of(client, CHAT, {**CHAT_BODY, **of("acme")})
    assert ("tenant" in line, line["metadata"]) == (False, {"tenant_id": "acme"})
    assert MetricSamples(client.get("/metrics").text).labels(TENANTS) == {"default"}


def waiting(stand: Stand) -> dict[str, int]:
    (state,) = stand.scheduler.states(tenants=9)
    return {one.tenant: one.running + one.waiting for one in state.tenants}


@pytest.mark.anyio
@pytest.mark.parametrize("is_known", [False, True])
async def test_the_queue_is_fair_to_the_named_tenants_but_not_if_the_caller_is_known(is_known):
    async with standing(**NAMED) as stand:
        calls = []
        for at, tenant in enumerate(("acme", "acme", "other")):
            body = {**CHAT_BODY, **of(tenant)}
            calls.append(stand.ask(body) if is_known else Call(stand.app, CHAT, body, {}))
            await stand.until(1, at)
        shown = waiting(stand)
        assert shown == ({"t": 3} if is_known else {"acme": 2, "other": 1})
        for left in (2, 1, 0):
            await stand.until(1, left)
            stand.engine.let_go()
        assert [(await call.done()).status for call in calls] == [200] * 3


@pytest.mark.parametrize(
    "tenant",
    ["", "a b", "default", "192.0.2.7", "2001:db8::/64", "(shadow)", "a\n", "é", "a" * 129],
)
def test_what_cannot_be_a_tenant_is_refused(serve, tenant):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, **NAMED).post(CHAT, json={**CHAT_BODY, **of(tenant)})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "metadata.tenant_id")
    assert not engine.requests


def test_it_gives_nobody_the_cached_prefixes_of_others(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, isolate_prefix_caches=True, **NAMED)
    for tenant in ("acme", "other"):
        client.post(CHAT, json={**CHAT_BODY, **of(tenant)})
    assert len({seen.cache_salt for seen in engine.requests}) == 1, "the address keeps them apart"


def test_the_names_do_not_make_series_without_bound(serve):
    client = serve(ScriptedEngine(deltas("a")), metrics_tenants=2, **NAMED)
    for number in range(9):
        client.post(CHAT, json={**CHAT_BODY, **of(f"evil-{number}")})
    found = MetricSamples(client.get("/metrics").text)
    assert found.labels(TENANTS) == {"evil-0", "evil-1", "other"}


def test_with_keys_the_key_names_the_tenant(keyed):
    line = line_of(keyed(ScriptedEngine(deltas("a"))), CHAT, {**CHAT_BODY, **of("other")})
    assert line["tenant"] == "acme"
