"""Responses that are kept: read, listed, continued, referred to, deleted; whose they are."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from redis import Redis
from starlette.types import Message

from proxy.api.responses.background import MOST_TAKES
from proxy.api.responses.responses_routes import READERS, KeptEvents
from proxy.domain.errors import StoreUnavailable
from proxy.domain.identity import Limits
from proxy.state.redis_connection import PREFIX
from proxy.state.streams import StreamLost, StreamsUnavailable
from tests.api.responses.formats import RESPONSES, body, events, folded, stream, whole
from tests.api.responses.test_input import CALL, CATALOG, OUTPUT, TOOLS, USER
from tests.doubles.dying_engine import StoppableEngine
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.redis_server import needs_redis, running
from tests.fixtures.stack import eventually

STREAMS = f"{PREFIX}{{kept-responses}}:"
RECORDS, RUNNING = f"{STREAMS}r:", f"{STREAMS}running"
# As if an owner had renewed nothing; 1: there is another owner.
LOSE = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 1 end
redis.call('ZADD', KEYS[2], 'XX', 1, ARGV[2])
return 0
"""


def get(client, response: dict[str, Any], path: str = "", **query: object):
    return client.get(f"{RESPONSES}/{response['id']}{path}", params=query)


@pytest.mark.parametrize("streams", [False, True])
def test_a_response_can_be_read_as_it_was_answered(serve, streams):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    found = folded(stream(client)) if streams else whole(client)
    assert found["store"] is True
    assert get(client, found).json() == found


def test_store_false_keeps_nothing(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    found = whole(client, store=False)
    assert found["store"] is False
    response = get(client, found)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "response_not_found")


def test_a_response_continues_the_one_before_and_its_whole_conversation(serve):
    engine = ScriptedEngine(deltas("one"), then=[deltas("two"), deltas("three")])
    client = serve(engine, CATALOG)
    first = whole(client, instructions="old rules")
    second = whole(client, input="more", previous_response_id=first["id"], instructions="rules")
    assert second["previous_response_id"] == first["id"]
    third = whole(client, input=None, previous_response_id=second["id"])
    assert engine.requests[1].text == "[system]rules[user]hi[assistant]one[user]more"
    assert engine.requests[2].text == "[user]hi[assistant]one[user]more[assistant]two"
    assert client.delete(f"{RESPONSES}/{first['id']}").json()["deleted"] is True
    assert get(client, first).status_code == 404
    assert whole(client, input="x", previous_response_id=third["id"])  # does not need it


def test_calls_of_the_response_before_take_their_outputs(serve):
    call = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    engine = ScriptedEngine(deltas(call), then=[deltas("ok")])
    client = serve(engine, CATALOG)
    first = whole(client, tools=TOOLS)
    output = {**OUTPUT, "call_id": first["output"][0]["call_id"]}
    whole(client, tools=TOOLS, previous_response_id=first["id"], input=[output])
    assert engine.requests[1].text.endswith(f"[tool {output['call_id']}]sunny")
    response = client.post(RESPONSES, json=body(previous_response_id=first["id"], tools=TOOLS))
    assert "No tool output found" in response.json()["error"]["message"]


def test_an_item_can_be_named_in_place_of_being_sent(serve):
    engine = ScriptedEngine(deltas("<think>hm</think>one"))
    client = serve(engine, CATALOG)
    first = whole(client)
    named = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    whole(client, input=[USER, *named, USER])
    assert engine.requests[1].text == "[user]hi[assistant](hm)one[user]hi"


def test_input_items_are_listed_in_pages(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    items = [{"role": "user", "content": str(number)} for number in range(25)]
    found = whole(client, input=[*items, CALL, OUTPUT], tools=TOOLS)
    texts, after, pages = [], None, 0
    while True:
        query = {"limit": 10, "order": "asc"} | ({"after": after} if after else {})
        page = get(client, found, "/input_items", **query).json()
        assert (page["first_id"], page["last_id"]) == (
            page["data"][0]["id"],
            page["data"][-1]["id"],
        )
        texts += [one["content"][0]["text"] for one in page["data"] if one["type"] == "message"]
        pages, after = pages + 1, page["last_id"]
        if not page["has_more"]:
            break
    assert (texts, pages) == ([str(number) for number in range(25)], 3)
    newest = get(client, found, "/input_items").json()["data"]
    assert (newest[0]["type"], len(newest)) == ("function_call_output", 20)
    assert get(client, found, "/input_items", after="x").status_code == 404
    assert get(client, found, "/input_items", limit=0).status_code == 400


def test_reading_a_kept_response_counts_as_a_request(serve):
    keys = KeysInMemory()
    keys.add_tenant("a", limits=Limits(requests_per_minute=3))
    headers = {"authorization": f"Bearer {keys.add('own1', tenant='a')}"}
    client = serve(ScriptedEngine(deltas("ok")), CATALOG, keys=keys, key_pepper=PEPPER)
    found = client.post(RESPONSES, json=body(), headers=headers).json()
    path = f"{RESPONSES}/{found['id']}"
    assert [client.get(path, headers=headers).status_code for _ in range(3)] == [200, 200, 429]


def test_what_runs_can_be_read_and_ended_and_one_too_many_is_refused_before_it_begins(serve):
    keys = KeysInMemory()
    keys.add_tenant("a", limits=Limits(concurrent_requests=1))
    engine = ScriptedEngine(deltas("hello", None), hangs=True)
    client = serve(engine, CATALOG, keys=keys, key_pepper=PEPPER)
    client.headers["authorization"] = f"Bearer {keys.add('own1', tenant='a')}"
    for end in ("cancel", "delete"):
        path = f"{RESPONSES}/{whole(client, background=True)['id']}"
        for streams in (False, True):
            refused = client.post(RESPONSES, json=body(background=True, stream=streams))
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (429, "concurrency_limit_exceeded")
            assert refused.headers["x-ratelimit-exceeded"] == "tenant.concurrent_requests"
            assert refused.headers["retry-after"]
        for reads in (path, f"{path}/input_items", "/v1/models"):
            assert client.get(reads).status_code == 200
        for computes in ("/tokenize", "/v1/responses/input_tokens"):
            given = {"model": "demo", "prompt": "x"} if computes == "/tokenize" else body()
            assert client.post(computes, json=given).status_code == 429
        ended = client.post(f"{path}/cancel") if end == "cancel" else client.delete(path)
        assert ended.status_code == 200
    assert len(engine.requests) == engine.closed_early == 2


def test_one_that_is_refused_in_the_background_leaves_nothing(serve):
    """A refused response leaves nothing in the store, and nothing in the limits."""
    keys = KeysInMemory()
    keys.add_tenant("a", limits=Limits(concurrent_requests=1, tokens_per_minute=100))
    client = serve(ScriptedEngine(deltas("ok")), CATALOG, keys=keys, key_pepper=PEPPER)
    client.headers["authorization"] = f"Bearer {keys.add('own1', tenant='a')}"
    for _ in range(2):
        refused = client.post(RESPONSES, json=body(background=True, max_output_tokens=2_000))
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            429,
            "request_exceeds_limit",
        )
    queued = whole(client, background=True, max_output_tokens=20)
    events(get(client, queued, stream=True).text)
    assert get(client, queued).json()["status"] == "completed"


def test_a_response_is_its_tenants_alone(serve):
    keys = KeysInMemory()
    for name in ("a", "b"):
        keys.add_tenant(name)
    mine, colleagues, other = (
        {"authorization": f"Bearer {keys.add(name, tenant=tenant)}"}
        for name, tenant in (("own1", "a"), ("own2", "a"), ("own3", "b"))
    )
    client = serve(ScriptedEngine(deltas("ok")), CATALOG, keys=keys, key_pepper=PEPPER)
    found = client.post(RESPONSES, json=body(), headers=mine).json()
    path = f"{RESPONSES}/{found['id']}"
    assert client.get(path, headers=colleagues).json() == found
    for method, where in (
        ("GET", path),
        ("DELETE", path),
        ("POST", f"{path}/cancel"),
        ("GET", f"{path}/input_items"),
    ):
        assert client.request(method, where, headers=other).status_code == 404
    for fields in (
        {"previous_response_id": found["id"]},
        {"input": [{"type": "item_reference", "id": found["output"][0]["id"]}]},
    ):
        assert client.post(RESPONSES, json=body(**fields), headers=other).status_code == 404
    assert client.get(path).status_code == 401


def test_where_nothing_is_kept_storage_is_refused_by_name(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG, responses_keep_s=0)
    assert whole(client)["store"] is False
    for name in ("store", "background"):
        error = client.post(RESPONSES, json=body(**{name: True})).json()["error"]
        assert (error["param"], "RESPONSES_KEEP_S" in error["message"]) == (name, True)


def test_the_oldest_responses_of_the_largest_tenant_make_room(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG, max_responses_mb=0.02)
    kept = [whole(client, input="x" * 3000) for _ in range(8)]
    assert [get(client, one).status_code for one in (kept[0], kept[-1])] == [404, 200]


def test_a_response_in_the_background_is_generated_for_nobody(serve):
    engine = ScriptedEngine(deltas("hello"))
    client = serve(engine, CATALOG)
    queued = whole(client, background=True)
    assert (queued["status"], queued["output"], queued["background"]) == ("queued", [], True)
    streamed = events(get(client, queued, stream=True).text)
    opening = ("created", "queued", "in_progress")
    done = folded(streamed, opening=opening)
    assert get(client, queued).json() == done
    for after in (0, 5, len(streamed) - 1):
        found = get(client, queued, stream=True, starting_after=after)
        assert events(found.text) == streamed[after + 1 :]
    again = whole(client, previous_response_id=queued["id"])
    assert again["status"] == "completed"
    assert (
        folded(
            events(client.post(RESPONSES, json=body(background=True, stream=True)).text),
            opening=opening,
        )["status"]
        == "completed"
    )


def test_a_response_in_the_background_can_be_cancelled_and_deleted(serve):
    engine = ScriptedEngine(deltas("hello", None), hangs=True)
    client = serve(engine, CATALOG)
    running = whole(client, background=True)
    ended = client.post(f"{RESPONSES}/{running['id']}/cancel").json()
    assert (ended["status"], ended["error"]) == ("cancelled", None)
    assert get(client, running).json() == ended
    assert client.post(f"{RESPONSES}/{running['id']}/cancel").json() == ended
    assert events(get(client, running, stream=True).text)[0]["type"] == "response.created"
    running = whole(client, background=True)
    assert client.delete(f"{RESPONSES}/{running['id']}").status_code == 200
    assert get(client, running).status_code == 404
    assert engine.closed_early == len(engine.requests)
    assert client.post(f"{RESPONSES}/{running['id']}/cancel").status_code == 404


def test_only_a_response_in_the_background_has_events_and_can_be_cancelled(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    found = whole(client)
    assert get(client, found, stream=True).json()["error"]["code"] == "stream_not_kept"
    assert get(client, found, starting_after=1).json()["error"]["param"] == "starting_after"
    refused = client.post(f"{RESPONSES}/{found['id']}/cancel")
    assert "background" in refused.json()["error"]["message"]


def test_what_cannot_be_generated_in_the_background_is_refused_at_once(serve):
    client = serve(ScriptedEngine(), CATALOG)
    response = client.post(RESPONSES, json=body(input="x" * 5000, background=True))
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_a_failure_in_the_background_is_the_responses_error(serve):
    client = serve(ScriptedEngine(deltas("ab", None), error=ValueError("bug")), CATALOG)
    queued = whole(client, background=True)
    found = events(get(client, queued, stream=True).text)
    assert [one["type"] for one in found[-2:]] == ["error", "response.failed"]
    failed = get(client, queued).json()
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert failed["output"][0]["content"][0]["text"] == "ab"


@needs_redis
def test_several_proxies_share_responses(serve, tmp_path):
    (tmp_path / "redis").mkdir()
    with running(tmp_path / "redis") as server:
        one, other = (
            serve(ScriptedEngine(deltas("ok")), CATALOG, ledger_url=server.url) for _ in range(2)
        )
        first = whole(one)
        assert get(other, first).json() == first
        assert whole(other, input="x", previous_response_id=first["id"])["status"] == "completed"
        queued = whole(one, background=True)
        streamed = events(get(other, queued, stream=True).text)
        done = folded(streamed, opening=("created", "queued", "in_progress"))
        assert get(other, queued).json() == done
        found = get(other, queued, stream=True, starting_after=3).text
        assert events(found) == streamed[4:]
        hung = serve(ScriptedEngine(deltas("ok", None), hangs=True), CATALOG, ledger_url=server.url)
        queued = whole(hung, background=True)
        ended = other.post(f"{RESPONSES}/{queued['id']}/cancel").json()
        assert ended["status"] == "cancelled"
        assert other.delete(f"{RESPONSES}/{first['id']}").status_code == 200
        assert get(one, first).status_code == 404


def test_items_that_are_named_are_bounded_by_the_size_of_a_body(serve):
    client = serve(ScriptedEngine(deltas("a" * 300)), CATALOG, max_request_size_mb=0.005)
    (item,) = whole(client)["output"]
    named = {"type": "item_reference", "id": item["id"]}
    whole(client, input=[named] * 3)
    response = client.post(RESPONSES, json=body(input=[named] * 60))
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "input")
    assert "5000 bytes" in error["message"]
    missing = f"msg_{'0' * 32}0"
    response = client.post(RESPONSES, json=body(input=[{**named, "id": missing}]))
    assert (response.status_code, missing in response.json()["error"]["message"]) == (404, True)


def test_a_conversation_that_grows_is_refused_by_name(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG, max_request_size_mb=0.003)
    statuses, previous = [], None
    while not statuses or (statuses[-1] == 200 and len(statuses) < 9):
        fields = body(input="x" * 900, previous_response_id=previous)
        response = client.post(RESPONSES, json=fields)
        statuses.append(response.status_code)
        previous = response.json().get("id")
    assert (len(statuses) > 2, statuses[-1]) == (True, 400)
    error = response.json()["error"]
    assert error["param"] == "previous_response_id"
    assert error["code"] == "context_length_exceeded"


def test_too_many_items_are_those_of_the_input(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    response = client.post(RESPONSES, json=body(input=[USER] * 3000))
    error = response.json()["error"]
    assert (response.status_code, error["param"], "'input'" in error["message"]) == (
        400,
        "input",
        True,
    )


@needs_redis
def test_a_response_that_several_proxies_were_lost_with_ends_as_failed(serve, tmp_path):
    (tmp_path / "redis").mkdir()
    with running(tmp_path / "redis") as server, Redis.from_url(server.url) as redis:
        client, _ = (
            serve(ScriptedEngine(deltas("ok", None), hangs=True), CATALOG, ledger_url=server.url)
            for _ in range(2)
        )
        queued = whole(client, background=True)
        (name,) = redis.zrange(RUNNING, 0, -1)
        redis.hset(f"{RECORDS}{name.decode()}", "takes", MOST_TAKES)

        def has_failed() -> bool:
            redis.zadd(RUNNING, {name: 1}, xx=True)  # as if the owner had renewed nothing
            return get(client, queued).json()["status"] == "failed"

        eventually(has_failed, 60, "it has failed")
        streamed = events(get(client, queued, stream=True).text)
        failed = get(client, queued).json()
        assert (streamed[-1]["type"], streamed[-1]["response"]) == ("response.failed", failed)
        assert "was lost with" in failed["error"]["message"]


@needs_redis
@pytest.mark.parametrize("home", ["memory", "redis"])
@pytest.mark.anyio
async def test_a_tenants_readers_are_bounded_and_leave_room_for_others(tmp_path, home):
    """READERS + 1 of one tenant: a quarter reads, and the other tenant's are not refused."""
    keys = KeysInMemory()
    for tenant in ("a", "b"):
        keys.add_tenant(tenant)
    mine, other = (
        {"authorization": f"Bearer {keys.add(name, tenant=tenant)}"}
        for name, tenant in (("own1", "a"), ("own2", "b"))
    )
    with contextlib.ExitStack() as stack:
        url = None
        if home == "redis":
            url = stack.enter_context(running(tmp_path)).url
        engine = ScriptedEngine(deltas("hello", None), hangs=True)
        app = application(engine, CATALOG, keys=keys, key_pepper=PEPPER, ledger_url=url)
        async with started(app):

            async def begun(headers: dict[str, str], **fields: object) -> Call:
                call = Call(app, RESPONSES, body(background=True, **fields), headers)
                return await call.done()

            async def reader(id: str, headers: dict[str, str]) -> Call:
                call = Call(app, f"{RESPONSES}/{id}", b"", headers, method="GET", query="stream=1")
                await call.until(lambda one: one.status)
                return call

            ids = [json.loads((await begun(each)).body)["id"] for each in (mine, other)]
            read = await asyncio.gather(*(reader(ids[0], mine) for _ in range(READERS // 4 + 5)))
            refused = [call for call in read if call.status == 429]
            assert [call.status for call in read if call not in refused] == [200] * (READERS // 4)
            assert b"readers of events of responses" in refused[0].body
            generated = len(engine.requests)
            assert (await begun(mine, stream=True)).status == 429
            assert len(engine.requests) == generated  # what is refused is not generated
            others = await asyncio.gather(*(reader(ids[1], other) for _ in range(11)))
            assert [call.status for call in others] == [200] * 11
            await asyncio.gather(*(call.disconnect() for call in (*read, *others)))
            assert (await reader(ids[0], mine)).status == 200  # their permits are back


@pytest.mark.anyio
async def test_a_failure_that_comes_while_the_client_leaves_is_retrieved():
    """Else asyncio logs it, with a traceback, when the task is collected."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: reported.append(found))

    async def failing() -> AsyncGenerator[bytes, None]:
        try:
            await asyncio.Event().wait()
        finally:
            raise StreamsUnavailable("late")
        yield b""

    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        left.set()

    with contextlib.suppress(StreamsUnavailable, StoreUnavailable):
        await KeptEvents(failing(), 0.01, nullcontext())({"type": "http"}, receive, send)
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


@needs_redis
@pytest.mark.parametrize("proxies", [1, 2])
def test_a_response_is_whole_however_often_proxies_take_it_from_one_another(
    serve, tmp_path, proxies
):
    """Each stops its stream, which the engine remembers for 60 s; three takes are allowed. A proxy
    that was late may take its own.
    """
    (tmp_path / "redis").mkdir()
    engine = StoppableEngine("It goes on and on.", held=2)
    with running(tmp_path / "redis") as server, Redis.from_url(server.url) as redis:
        client, *_ = (serve(engine, CATALOG, ledger_url=server.url) for _ in range(proxies))
        queued = whole(client, background=True)
        (name,) = redis.zrange(RUNNING, 0, -1)
        record = f"{RECORDS}{name.decode()}"

        def has_changed(before: bytes) -> bool:
            """Often, so that also the proxy that has just renewed its lease can lose it."""
            return any(redis.eval(LOSE, 2, record, RUNNING, before, name) for _ in range(100))

        for take in range(1, 1 + MOST_TAKES):
            eventually(
                partial(has_changed, redis.hget(record, "owner")), 30, "another proxy takes it"
            )
            eventually(lambda take=take: len(engine.stopped) >= take, 30, "its owner has lost it")
        engine.may_end.set()
        streamed = events(get(client, queued, stream=True).text)
        done = folded(streamed, opening=("created", "queued", "in_progress"))
        assert done["output"][0]["content"][0]["text"] == "It goes on and on."


@pytest.mark.anyio
async def test_events_that_are_lost_while_they_are_read_end_with_an_error():
    async def cut() -> AsyncGenerator[bytes, None]:
        yield b"event: response.created\n\n"
        raise StreamLost

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    sent: list[bytes] = []

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    await KeptEvents(cut(), 60, nullcontext())({"type": "http"}, receive, send)
    _, error, end, rest = b"".join(sent).decode().split("\n\n")
    assert '"code":"store_unavailable"' in error
    assert (error.split("\n")[0], end, rest) == ("event: error", "data: [DONE]", "")
