"""Choice: text, log-probabilities and token ids stay together, however deltas are cut."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.completion import fold
from proxy.domain.model import ModelCard
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.domain.record import RequestRecord
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    PromptLimit,
    Sampling,
    TextPrompt,
    TokenPrompt,
)
from proxy.generation.choice.choice import Choice
from proxy.generation.choice.choice_cost import ChoiceCost
from tests.doubles.engine import CARD
from tests.strategies import cuts

LOGGED = Sampling(top_log_probs=1)
TOKENS = st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"\xc3", b"\xa9", "é".encode()]))


def asked(**fields) -> GenerationRequest:
    return GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="p"), **fields)


def made(request: GenerationRequest, card: ModelCard = CARD) -> Choice:
    return Choice(request, card, 0, ChoiceCost(card, RequestRecord()))


def joined(tokens: list[bytes], finish: FinishReason, at: int = 0) -> TokenDelta:
    return TokenDelta(
        tuple(tokens),
        finish=finish,
        token_ids=tuple(range(at, at + len(tokens))),
        log_probs=tuple(
            TokenLogProb(-float(at + i), (Alternative(data, -1.0),))
            for i, data in enumerate(tokens)
        ),
    )


def answered(request: GenerationRequest, pieces: list[list[bytes]], finish: FinishReason):
    choice, events, at = made(request), [], 0
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        events += choice.push(replace(joined(piece, finish, at), finish=finish if last else None))
        at += len(piece)
        if choice.is_finished:
            break
    return fold(events)


@given(
    st.data(),
    TOKENS,
    st.lists(st.text("abé", min_size=1, max_size=3), max_size=2),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from(FinishReason),
)
def test_every_cut_gives_the_same_answer(data, tokens, stop, includes_stop, min_tokens, finish):
    request = asked(
        stop=tuple(stop),
        includes_stop=includes_stop,
        sampling=replace(LOGGED, min_tokens=min_tokens),
        returns_token_ids=True,
    )
    whole = answered(request, [tokens], finish)
    pieces = [piece for piece in data.draw(cuts(tokens)) if piece] or [[]]
    assert answered(request, pieces, finish).choices == whole.choices


@given(st.text("abé", max_size=20), st.lists(st.text("abé", min_size=1, max_size=3), max_size=2))
def test_the_logged_tokens_are_those_of_the_text(text, stop):
    """With a stop string inside a token only the last one may reach beyond the text."""
    tokens = [bytes([byte]) for byte in text.encode()]
    (answer,) = answered(
        asked(stop=tuple(stop), sampling=LOGGED), [tokens], FinishReason.LENGTH
    ).choices
    assert b"".join(token.token_bytes for token in answer.log_probs).decode() == answer.text
    for token in answer.log_probs:
        assert answer.text[token.offset :].encode().startswith(token.token_bytes[:1]) or (
            token.token_bytes[0] & 0xC0 == 0x80
        )


@pytest.mark.parametrize(
    ("finish", "text"), [(FinishReason.LENGTH, "a"), (FinishReason.STOP, "a\ufffd")]
)
def test_a_character_that_the_token_limit_cuts_is_left_out(finish, text):
    """Its bytes stay with the log-probabilities; a model's own half character stays in the text."""
    cut = [b"a", *(bytes([byte]) for byte in "\U0001f600".encode()[:3])]
    (answer,) = answered(asked(sampling=LOGGED), [cut], finish).choices
    assert answer.text == text
    assert [token.token_bytes for token in answer.log_probs] == cut


def test_the_end_token_is_counted_and_has_an_id_but_is_not_logged():
    completion = answered(
        asked(sampling=LOGGED, returns_token_ids=True), [[b"a", b""]], FinishReason.STOP
    )
    (answer,) = completion.choices
    assert [token.token_bytes for token in answer.log_probs] == [b"a"]
    assert answer.token_ids == (0, 1)
    assert completion.usage.completion_tokens == 2


@pytest.mark.parametrize("sampling", [LOGGED, replace(LOGGED, stop_token_ids=(5,))])
def test_behind_an_echoed_prompt_the_end_token_is_logged_too(sampling):
    """Harnesses ask for one token, and take all log-probabilities but the last for the prompt's."""
    last = b"" if sampling is LOGGED else b"x"
    delta = replace(
        ECHOED,
        token_bytes=(*ECHOED.token_bytes[:4], last),
        token_ids=(1, 2, 3, 4, 5),
        log_probs=ECHOED.log_probs[:5],
        finish=FinishReason.STOP,
    )
    request = asked(echoes_prompt=True, sampling=sampling, max_tokens=1)
    (answer,) = fold(made(request).push(delta)).choices
    assert answer.text == " Hié"
    assert [one.log_prob.log_prob for one in answer.log_probs] == [None, -1, -2, -3, -4]
    assert (answer.log_probs[-1].token_bytes, answer.log_probs[-1].offset) == (b"", 4)


@pytest.mark.parametrize(("includes_stop", "text"), [(False, "a"), (True, "ab")])
def test_a_stop_token_is_part_of_the_text_only_when_asked_for(includes_stop, text):
    request = asked(sampling=Sampling(stop_token_ids=(1,)), includes_stop=includes_stop)
    assert answered(request, [[b"a", b"b"]], FinishReason.STOP).text == text


def test_a_stop_token_at_the_token_limit_is_text():
    request = asked(sampling=Sampling(stop_token_ids=(1,)))
    assert answered(request, [[b"a", b"b"]], FinishReason.LENGTH).text == "ab"


def test_stop_strings_are_not_looked_for_in_the_first_tokens():
    request = asked(stop=("a",), sampling=Sampling(min_tokens=2))
    tokens = [b"a", b"b", b"c", b"a", b"d"]
    assert answered(request, [tokens], FinishReason.LENGTH).text == "abc"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "a"),
        ({"echoes_prompt": True}, "p a"),
        ({"prompt": ChatPrompt(messages=(), continues_last=True)}, " a"),
    ],
)
def test_the_space_between_the_callers_words_and_the_models_is_kept(fields, text):
    card = replace(CARD, facts=replace(CARD.facts, strips_leading_space=True))
    choice = made(replace(asked(), **fields), card)
    assert choice.push(joined([b" a"], FinishReason.LENGTH))[0].text == text


ECHOED = TokenDelta(
    (b"", b" Hi", b"\xc3", b"\xa9", b"!", b"x"),
    prompt_tokens=4,
    token_ids=(1, 2, 3, 4, 5, 6),
    log_probs=(
        TokenLogProb(None),
        *(TokenLogProb(-float(at), (Alternative(b"?", -0.1),)) for at in range(1, 6)),
    ),
    finish=FinishReason.LENGTH,
)


@pytest.mark.parametrize("strips", [False, True])
def test_a_prompt_that_the_engine_tells_is_ahead_of_the_answer_and_no_part_of_it(strips):
    card = replace(CARD, facts=replace(CARD.facts, strips_leading_space=strips))
    request = asked(echoes_prompt=True, sampling=LOGGED, returns_token_ids=True, stop=("Hi", "x"))
    whole = fold(made(request, card).push(ECHOED))
    answer = whole.choices[0]
    before = "Hié" if strips else " Hié"
    assert answer.text == before + "!", "stop strings are not looked for in the prompt"
    assert (answer.reason, answer.token_ids) == (FinishReason.STOP, (5, 6))
    assert whole.usage.prompt_tokens == 4
    assert whole.usage.completion_tokens == 2
    start = len(before) - 1
    assert [one.offset for one in answer.log_probs] == [0, 0, start, start, start + 1]
    assert [one.log_prob.log_prob for one in answer.log_probs] == [None, -1, -2, -3, -4]


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_prompt_may_come_in_several_deltas(cut):
    request = asked(echoes_prompt=True, sampling=LOGGED, returns_token_ids=True)
    whole = fold(made(request).push(ECHOED))
    first, rest = (
        replace(
            ECHOED,
            token_bytes=ECHOED.token_bytes[part],
            token_ids=ECHOED.token_ids[part],
            log_probs=ECHOED.log_probs[part],
        )
        for part in (slice(cut), slice(cut, None))
    )
    choice = made(request)
    events = choice.push(replace(first, finish=None))
    events += choice.push(replace(rest, prompt_tokens=None, cached_tokens=None))
    assert fold(events) == whole


def test_the_mean_log_probability_is_of_the_answer_alone():
    request = asked(echoes_prompt=True, sampling=LOGGED)
    *_, end = made(request).push(ECHOED)
    assert end.mean_log_prob == -4.5


def test_a_prompt_alone_has_no_answer():
    request = asked(echoes_prompt=True, max_tokens=0)
    delta = replace(ECHOED, prompt_tokens=6, log_probs=())
    whole = fold(made(request).push(delta))
    assert (whole.text, whole.reason) == (" Hié!x", FinishReason.LENGTH)
    assert whole.usage.completion_tokens == 0


@pytest.mark.parametrize(
    ("fields", "by_engine"),
    [
        ({}, False),
        ({"max_tokens": 0}, True),
        ({"sampling": LOGGED}, True),
        ({"prompt": TokenPrompt(ids=(1,))}, True),
        ({"prompt_limit": PromptLimit(tokens=3)}, True),
    ],
)
def test_the_engine_tells_the_prompt_where_its_text_is_not_enough(fields, by_engine):
    prompt = {"prompt": TextPrompt(text="p")} | fields
    request = GenerationRequest(id="r", model="demo", echoes_prompt=True, **prompt)
    assert request.echoes_tokens is by_engine
    assert not replace(request, echoes_prompt=False).echoes_tokens


@given(st.lists(TOKENS, max_size=4), st.sampled_from(FinishReason))
def test_tokens_taken_together_are_the_same_text(pieces, finish):
    """A stop string that never comes makes the choice look at each."""
    deltas = [TokenDelta(tuple(piece)) for piece in pieces] + [TokenDelta((b"",), finish=finish)]

    def events(stop: tuple[str, ...]) -> list:
        choice = made(asked(stop=stop))
        return [choice.push(delta) for delta in deltas]

    assert events(()) == events(("never",))


@pytest.mark.parametrize(
    "asked_for", [{"stop": ("z",)}, {"echoes_prompt": True, "sampling": LOGGED, "max_tokens": 0}]
)
def test_the_time_of_a_delta_grows_with_its_tokens_and_not_with_their_text_so_far(asked_for):
    def seconds(size: int) -> float:
        choice = made(asked(**asked_for))
        delta = TokenDelta((b"a" * size,) * 4_000, prompt_tokens=4_000)
        began = time.thread_time()
        choice.push(delta)
        return time.thread_time() - began

    assert min(seconds(500) for _ in range(3)) < 20 * min(seconds(1) for _ in range(3))
