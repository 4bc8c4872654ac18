"""Permits, the size of a request, and a burst that begins over many turns of the event loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.access.concurrency import (
    LONGEST_S,
    SHORTEST_S,
    ConcurrencyLimit,
    ModelConcurrency,
    permits_needed,
)
from proxy.access.limits.token_bounds import prompt_bounds
from proxy.access.request_size import COPIED_BYTES, check_copies, exceed
from proxy.access.start_gate import StartGate
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import InvalidRequest, RateLimited
from proxy.domain.request import (
    GenerationRequest,
    PromptBatch,
    Sampling,
    TextPrompt,
    TokenPrompt,
)
from tests.doubles.engine import CARD, FACTS


def choices(number: int, top: int | None = None) -> GenerationRequest:
    return GenerationRequest(
        id="r",
        model="demo",
        prompt=TextPrompt(text="x"),
        choices=number,
        sampling=Sampling(top_log_probs=top),
    )


@pytest.mark.parametrize(
    ("top", "number", "counted"), [(None, 3, 3), (0, 3, 3), (1, 1, 2), (4, 2, 4), (20, 2, 12)]
)
def test_choices_with_alternatives_count_for_more(top, number, counted):
    assert permits_needed(choices(number, top)) == counted


def test_models_have_limits_of_their_own_by_their_rows_as_they_are_now():
    rows = {"small": 1, "large": 4}
    admission = ModelConcurrency(per_row=2, rows=lambda card: rows[card.triton_model])
    small, large = (replace(CARD, triton_model=name) for name in rows)
    made_before_others_ran = admission.permits(large, choices(1))
    with admission.permits(large, choices(7)), made_before_others_ran:
        pass
    with admission.permits(small, choices(2)), admission.permits(large, choices(8)):
        assert admission.running == 10
        for card in (small, large):
            with pytest.raises(RateLimited), admission.permits(card, choices(1)):
                pass
        rows["small"] = 2
        with admission.permits(small, choices(2)):
            assert admission.running == 12
    assert admission.running == 0


def test_adapters_share_the_rows_of_their_model_and_models_the_total():
    admission = ModelConcurrency(3, per_row=2)
    model = replace(CARD, facts=replace(FACTS, rows=1))
    adapter = replace(model, name="adapter", parent="demo")
    other = replace(model, triton_model="other")
    with admission.permits(model, choices(2)):
        for card, number, said in (
            (adapter, 1, "'demo'"),
            (other, 2, "Too many concurrent requests"),
        ):
            with (
                pytest.raises(RateLimited, match=said),
                admission.permits(card, choices(number)),
            ):
                pass
    with admission.permits(other, choices(2)):  # what the refused one had taken came back
        pass


def test_the_wait_is_the_missing_permits_over_the_measured_rate_within_bounds():
    now_s = [100.0]

    def measured(permits: int, gap_s: float) -> ConcurrencyLimit:
        limit = ConcurrencyLimit(200, clock=lambda: now_s[0])
        for _ in range(11):
            with limit.permits(permits):
                pass
            now_s[0] += gap_s
        return limit

    halves = measured(1, 0.5)
    assert halves.wait_s(1) == pytest.approx(0.55)
    assert halves.wait_s(10) == pytest.approx(5.5)
    assert measured(128, 0.0).wait_s(1) == SHORTEST_S
    assert measured(1, 10_000).wait_s(128) == LONGEST_S


SENT = EngineRequest(id="r", model=CARD, timeout_s=9, sampling=Sampling())
REGEX = Constraint(GuideKind.REGEX, "a" * 300)


def request(prompt="x", **fields) -> GenerationRequest:
    prompt = TextPrompt(text=prompt) if isinstance(prompt, str) else prompt
    return GenerationRequest(id="r", model="demo", prompt=prompt, **fields)


@pytest.mark.parametrize(
    "asked",
    [
        request("é" * 100, choices=6),
        request("x" * 300, best_of=4),
        request("x", choices=4, constraint=REGEX),
        request(TokenPrompt(ids=(1,) * 100), choices=3),
        request(PromptBatch(prompts=(TextPrompt(text="x" * 400),) * 2), choices=2),
        request("x", choices=5, sampling=Sampling(bad_words=("w" * 50,) * 5)),
        request("x", choices=5, sampling=Sampling(allowed_token_ids=(1,) * 60)),
    ],
)
def test_choices_times_what_each_is_sent_is_bounded(asked):
    sent = [
        replace(SENT, text=getattr(prompt, "text", None), token_ids=getattr(prompt, "ids", None))
        for prompt in asked.prompts
    ]
    with pytest.raises(InvalidRequest, match="at most 1000") as refused:
        check_copies(asked, sent, most=1000)
    assert refused.value.param == "choices"
    check_copies(asked, sent, most=10_000)


class Text(str):
    """Counts the characters that are encoded of it."""

    encoded = 0

    def encode(self, *args: str) -> bytes:
        Text.encoded += len(self)
        return super().encode(*args)


@pytest.mark.parametrize(
    ("size", "copies", "encoded", "is_refused"),
    [
        (900_000, 2_048, 0, True),  # by its characters alone
        (7_000, 2_048, 7_000, True),
        (3_000, 2_048, 3_000, False),
        (3_000, 1, 3_000, False),
    ],
)
def test_a_bound_of_copies_looks_at_a_text_once(size, copies, encoded, is_refused):
    Text.encoded = 0
    text = Text("é" * size)
    assert exceed(COPIED_BYTES, [(text, copies)]) is is_refused
    asked, one = request("x", choices=copies + 1), replace(SENT, text=text)
    assert Text.encoded == encoded
    if is_refused:
        with pytest.raises(InvalidRequest):
            check_copies(asked, [one])
    assert Text.encoded <= 2 * encoded


@pytest.mark.parametrize("query", ["é" * 1_000, "é" * 100_000, "x" * 1_000])
def test_a_query_is_looked_at_once_for_all_its_documents(query):
    Text.encoded = 0
    pairs = tuple(TextPrompt(text=Text(query), pair="a") for _ in range(2_048))
    long = replace(CARD, facts=replace(CARD.facts, context_length=200_000))
    asked = replace(SENT, model=long, text="x", pair="a", embeds=0, batch=pairs)
    assert 2_048 * len(query) <= prompt_bounds([asked])["r"]
    assert Text.encoded <= len(query)


pytestmark = pytest.mark.anyio


def test_a_burst_begins_a_few_a_turn_and_in_order():
    async def scenario():
        gate, began, a_turn = StartGate(2), [], []

        async def begin(number: int) -> None:
            await gate.wait()
            began.append(number)

        tasks = [asyncio.ensure_future(begin(number)) for number in range(11)]
        while len(began) < 11:
            before = len(began)
            await asyncio.sleep(0)
            a_turn.append(len(began) - before)
        await asyncio.gather(*tasks)
        return began, a_turn

    began, a_turn = asyncio.run(scenario())
    assert began == list(range(11))
    assert max(a_turn) <= 2
