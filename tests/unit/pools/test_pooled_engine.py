"""Streams and tokenizers over a pool: where they go, what they report and leave behind."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointState
from proxy.domain.errors import (
    DeadlineExceeded,
    EngineFailed,
    ErrorCode,
    GuidePending,
    InvalidRequest,
    ModelUnavailable,
    RateLimited,
)
from proxy.domain.output import BlockChanges, FinishReason, TokenDelta
from proxy.domain.record import Stage, StageName
from proxy.pools.pooled_engine import CHARACTERS_A_TOKEN
from proxy.telemetry.request_log import RequestLog
from tests.doubles import clock
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton, build, checked
from tests.doubles.tokenizer import ByteTokenizer

LOST = ModelUnavailable("away", detail="UNAVAILABLE: the connection was lost")
TOO_LONG = InvalidRequest("too long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt")
FULL = RateLimited("full", code=ErrorCode.QUEUE_FULL)


def scripted(*script: object, **options: object) -> ScriptedTriton:
    triton = ScriptedTriton()
    triton.engine = ScriptedEngine(*script, **options)
    return triton


async def finish(stand: PoolStand) -> None:
    assert await stand.answered() == "ab"


async def close_early(stand: PoolStand) -> None:
    await (await stand.begun()).aclose()


async def close_unread(stand: PoolStand) -> None:
    await stand.engine.generate(stand.request()).aclose()


async def fail(stand: PoolStand) -> None:
    with pytest.raises((ModelUnavailable, EngineFailed, InvalidRequest)):
        await stand.deltas()


async def cancel(stand: PoolStand) -> None:
    task = asyncio.create_task(stand.deltas())
    await checked()
    assert stand.outstanding[0] == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("triton", "end", "outcomes"),
    [
        (lambda: scripted(deltas("ab")), finish, {"ended": 1}),
        (lambda: scripted(deltas("ab")), close_early, {"left": 1}),
        (lambda: scripted(deltas("ab")), close_unread, {}),
        (lambda: scripted(deltas("a", None), error=LOST), fail, {"lost": 1}),
        (lambda: scripted(error=LOST), fail, {"lost": 1}),
        (lambda: scripted(error=EngineFailed("it broke")), fail, {"refused": 1}),
        (lambda: scripted(error=TOO_LONG), fail, {"refused": 1}),
        (lambda: scripted(hangs=True), cancel, {"left": 1}),
        (lambda: scripted(deltas("a", None), hangs=True), cancel, {"left": 1}),
    ],
    ids=[
        *("finished", "closed", "never read", "lost after a token", "lost before", "failed"),
        *("refused", "cancelled before a token", "cancelled after one"),
    ],
)
@clock.jumps
async def test_no_work_is_outstanding_however_a_stream_ended(triton, end, outcomes):
    async with PoolStand({"a:1": triton()}) as stand:
        await end(stand)
        assert stand.outstanding == (0, 0)
        found = {outcome: n for (_, outcome), n in stand.counter.outcomes.items()}
        assert found == outcomes
        assert len(stand.counter.failures) == found.get("lost", 0) + found.get("refused", 0)


@pytest.mark.parametrize(
    "error",
    [GuidePending("later"), EngineFailed("it broke"), TOO_LONG, FULL, DeadlineExceeded("late")],
    ids=lambda error: error.code,
)
@clock.jumps
async def test_an_endpoint_that_answers_with_an_error_is_not_lost(error):
    async with PoolStand({"a:1": scripted(error=error), "b:1": ScriptedTriton()}) as stand:
        for _ in range(20):
            with pytest.raises(type(error)):
                await stand.deltas(avoids=frozenset({"b:1"}))
        assert set(stand.states().values()) == {EndpointState.READY}
        assert not any(outcome == "lost" for _, outcome in stand.counter.outcomes)


@clock.jumps
async def test_the_requests_line_names_the_endpoints_from_which_tokens_came():
    tritons = {
        "a:1": scripted(error=LOST),
        "b:1": scripted(deltas("ab")),
        "c:1": scripted(deltas("ab")),
    }
    async with PoolStand(tritons) as stand:
        with capture_logs() as lines, RequestLog().recorded("POST", "/x") as record:
            stage = Stage(StageName.TRITON, record)
            for avoided in ({"b:1", "c:1"}, {"a:1", "c:1"}, {"a:1", "b:1"}, {"a:1", "b:1"}):
                with suppress(ModelUnavailable):
                    await stand.deltas(avoids=frozenset(avoided), stage=stage)
        assert next(line for line in lines if line["event"] == "request")["endpoints"] == [
            "b:1",
            "c:1",
        ]


@clock.jumps
async def test_a_deadline_closes_no_breaker():
    """An endpoint that hangs says nothing, and that is no sign that it works."""
    triton = scripted(error=LOST)
    async with PoolStand({"a:1": triton, "b:1": ScriptedTriton()}) as stand:
        for _ in range(5):
            await stand.lose(1, avoids=frozenset({"b:1"}))
            await checked()
        triton.engine.error = DeadlineExceeded("late")
        await asyncio.sleep(30)
        with pytest.raises(DeadlineExceeded):
            await stand.deltas(avoids=frozenset({"b:1"}))
        assert stand.states()["a:1"] is EndpointState.EJECTED


@clock.jumps
async def test_an_endpoint_is_never_chosen_that_does_not_serve_the_build_of_the_card():
    served = {"a:1": 1, "b:1": 2, "c:1": 1, "d:1": 3}
    tritons = {address: ScriptedTriton(build(n)) for address, n in served.items()}
    async with PoolStand(tritons) as stand:
        for card in stand.cards():
            before = Counter(stand.counter.begun)
            for _ in range(10):
                await stand.answered(model=card)
            used = {name for name, n in stand.counter.begun.items() if n > before[name]}
            expected = {name for name, n in served.items() if n == card.facts.created}
            assert used == expected


@clock.jumps
async def test_a_build_that_is_gone_is_an_error_and_not_another_build():
    async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
        card = stand.cards()[0]
        triton.models = [build(1_800_000_000)]
        stand.endpoint("a:1").note_loading()
        await checked()
        with pytest.raises(ModelUnavailable, match="not available") as error:
            await stand.answered(model=card)
        assert error.value.endpoint is None
        assert not triton.engine.requests


@clock.jumps
async def test_the_first_token_has_the_prompts_exact_length_and_the_end_teaches_the_estimate():
    async with PoolStand({"a:1": ScriptedTriton()}) as stand:
        stream = await stand.begun(text="x" * 4000, max_tokens=5)
        assert stand.outstanding == (1, 3 + 5)  # the double counts 7 tokens, 4 of them cached
        await stream.aclose()
        for _ in range(100):
            await stand.answered()
        route = stand.engine.route(stand.request())
        assert stand.outstanding[1] < 20  # 256 before anything was seen
        route.end()
        assert stand.outstanding == (0, 0)


PROMPT = "".join(f"{number:07d} " for number in range(200))


def three() -> dict[str, ScriptedTriton]:
    return {f"{name}:1": ScriptedTriton() for name in "abc"}


@clock.jumps
async def test_equal_beginnings_go_to_one_endpoint_and_other_salts_do_not_share_it():
    async with PoolStand(three(), policy="prefix") as stand:
        await checked(20)

        async def place(**fields: object) -> str:
            route = stand.engine.route(stand.request(**fields))
            route.end()
            return route.place.endpoint

        first = await place(text=PROMPT)
        assert {await place(text=PROMPT + str(n)) for n in range(10)} == {first}
        salted = {await place(text=PROMPT, cache_salt=str(n)) for n in range(30)}
        assert len(salted) == 3
        route = stand.engine.route(stand.request(text=PROMPT))
        assert route.cached_tokens > 0.9 * len(PROMPT) / CHARACTERS_A_TOKEN
        route.end()


@clock.jumps
async def test_what_an_endpoint_has_cached_is_no_work_there():
    async with PoolStand({"a:1": ScriptedTriton()}, policy="prefix") as stand:
        stand.tritons["b:1"] = ScriptedTriton()
        stand.source.name("a:1", "b:1")
        await checked(20)
        first = stand.engine.route(stand.request(text=PROMPT, max_tokens=1))
        tokens = stand.outstanding[1]
        first.end()
        again = stand.engine.route(stand.request(text=PROMPT, max_tokens=1))
        assert again.place == first.place
        assert stand.outstanding[1] < 0.1 * tokens
        again.end()
        assert stand.outstanding == (0, 0)


class Failing(ByteTokenizer):
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    async def admit(self, request):
        self.calls += 1
        raise self.error


def with_tokenizer(tokenizer: ByteTokenizer) -> ScriptedTriton:
    triton = ScriptedTriton()
    triton.tokenizer = tokenizer
    return triton


def lost() -> Failing:
    return Failing(ModelUnavailable("away"))


@clock.jumps
async def test_one_that_is_lost_is_left_out_and_another_one_asked():
    tritons = {"a:1": with_tokenizer(broken := lost()), "b:1": ScriptedTriton()}
    async with PoolStand(tritons) as stand:
        for _ in range(4):
            assert (await stand.tokenizer.admit(stand.request(text="ab"))).ids[1:] == (97, 98)
        assert broken.calls == 1
        assert stand.states()["a:1"] is EndpointState.NOT_READY


@clock.jumps
async def test_it_gives_up_when_all_are_lost():
    tokenizers = [lost() for _ in range(5)]
    tritons = {f"{n}:1": with_tokenizer(one) for n, one in enumerate(tokenizers)}
    async with PoolStand(tritons) as stand:
        with pytest.raises(ModelUnavailable, match="away"):
            await stand.tokenizer.admit(stand.request())
        assert sum(one.calls for one in tokenizers) == 3


@clock.jumps
async def test_a_guide_that_is_still_compiled_is_no_loss():
    tritons = {"a:1": with_tokenizer(pending := Failing(GuidePending("later")))}
    async with PoolStand(tritons) as stand:
        with pytest.raises(GuidePending):
            await stand.tokenizer.admit(stand.request())
        assert (pending.calls, stand.states()["a:1"]) == (1, EndpointState.READY)


IDS = tuple(range(256))
NAMED = (16, *range(1_000, 1_015))  # its blocks, without the one of the last token
KNOWN = BlockChanges(5, True, NAMED[1:], ())


def reporting(*changes: BlockChanges | Exception, deltas: int = 2) -> ScriptedTriton:
    """A Triton whose engine names the blocks of a prompt, and has these changes of its cache."""
    first = TokenDelta(
        (b"a",), prompt_tokens=256, prompt_blocks=struct.pack(f"<{len(NAMED)}Q", *NAMED)
    )
    if deltas == 1:
        triton = scripted([replace(first, finish=FinishReason.STOP)])
    else:
        triton = scripted([first, TokenDelta((b"b",), finish=FinishReason.STOP)])
    triton.engine.changes = list(changes)
    return triton


async def expected(stand: PoolStand) -> int:
    """How many of a prompt's 256 tokens the endpoint has in its cache."""
    await stand.deltas(text=None, token_ids=IDS)
    return stand.counter.expected[-1]


@pytest.mark.parametrize("deltas", [1, 2])
@clock.jumps
async def test_a_prompt_is_expected_where_engines_report_its_blocks(deltas):
    one, other = reporting(KNOWN, deltas=deltas), reporting(deltas=deltas)
    async with PoolStand({"a:1": one, "b:1": other}, policy="prefix") as stand:
        await checked(20)
        assert await expected(stand) == 0, "nobody knows which blocks the prompt has"
        await checked(3)
        assert await expected(stand) == 240, "and it was not a guess"
        assert stand.counter.begun["a:1"] >= 1
        await checked(3)
        one.engine.changes = [BlockChanges(9, False, (), NAMED[5:])]
        await checked(3)
        assert await expected(stand) == 64
        assert one.engine.positions[-1] == 9


@pytest.mark.parametrize(
    "change",
    [BlockChanges(77, True, (), ()), LOST, EngineFailed("it does not know its cache")],
    ids=["another process", "lost", "refused"],
)
@clock.jumps
async def test_what_was_reported_does_not_hold_after(change):
    one, two = reporting(KNOWN), reporting()
    async with PoolStand({"a:1": one, "b:1": two}, policy="prefix") as stand:
        await checked(20)
        await expected(stand)
        await checked(3)
        one.engine.changes = [change, BlockChanges(99, True, NAMED[1:4], ())]
        seen = len(one.engine.positions)
        await checked(3)
        assert one.engine.positions[seen : seen + 3] == [5, 0, 99]
        assert await expected(stand) == 32


@clock.jumps
async def test_an_engine_is_not_asked_where_prefixes_are_not_compared():
    for tritons, policy in (
        ({"a:1": reporting()}, "prefix"),
        ({"a:1": reporting(), "b:1": reporting()}, "least_outstanding"),
    ):
        async with PoolStand(tritons, policy=policy) as stand:
            await checked(5)
            assert [one.engine.positions for one in tritons.values()] == [[]] * len(tritons)
            assert await expected(stand) == 0


@clock.jumps
async def test_an_endpoint_that_leaves_takes_its_reports_with_it():
    one, two = reporting(KNOWN), reporting()
    async with PoolStand({"a:1": one, "b:1": two}, policy="prefix") as stand:
        await checked(20)
        await expected(stand)
        await checked(3)
        stand.tritons["c:1"] = reporting()
        stand.source.name("b:1", "c:1")
        await checked(20)
        assert await expected(stand) == 0
