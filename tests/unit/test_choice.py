"""Choice: text, log-probabilities and token ids stay together, however deltas are cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.choice import Choice
from proxy.domain.completion import fold
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.domain.request import ChatPrompt, GenerationRequest, Sampling, TextPrompt
from tests.doubles.engine import CARD
from tests.strategies import cuts

LOGGED = Sampling(top_log_probs=1)
TOKENS = st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"\xc3", b"\xa9", "é".encode()]))


def asked(**fields) -> GenerationRequest:
    return GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="p"), **fields)


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
    choice, events, at = Choice(request, CARD), [], 0
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


def test_the_end_token_is_counted_and_has_an_id_but_is_not_logged():
    completion = answered(
        asked(sampling=LOGGED, returns_token_ids=True), [[b"a", b""]], FinishReason.STOP
    )
    (answer,) = completion.choices
    assert [token.token_bytes for token in answer.log_probs] == [b"a"]
    assert answer.token_ids == (0, 1)
    assert completion.usage.completion_tokens == 2


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


def test_an_echo_is_in_front_and_shifts_the_offsets():
    request = asked(echoes_prompt=True, sampling=LOGGED)
    (answer,) = answered(request, [[b"a", b"b"]], FinishReason.LENGTH).choices
    assert answer.text == "pab"
    assert [token.offset for token in answer.log_probs] == [1, 2]


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
    choice = Choice(replace(asked(), **fields), card)
    assert choice.push(joined([b" a"], FinishReason.LENGTH))[0].text == text
