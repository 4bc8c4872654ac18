"""Work that was sent and has not ended."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.pools.outstanding import Outstanding, TokenEstimates

AMOUNT = st.integers(-5, 10_000)


@given(st.lists(st.tuples(AMOUNT, AMOUNT, st.none() | AMOUNT)), st.randoms())
def test_nothing_is_left_when_all_streams_have_ended_in_any_order(streams, random):
    outstanding = Outstanding()
    handles = []
    for prompt, output, exact in streams:
        work = outstanding.add(prompt_tokens=prompt, output_tokens=output)
        if exact is not None:
            work.set_prompt_tokens(exact)
        handles.append(work)
        assert outstanding.tokens == sum(one.tokens for one in handles)
    assert outstanding.streams == len(streams)
    random.shuffle(handles)
    for work in handles:
        assert outstanding.tokens >= 0
        for _ in range(2):
            work.release()
            work.set_prompt_tokens(5_000)
    assert (outstanding.streams, outstanding.tokens) == (0, 0)


def test_estimates_follow_what_the_model_did_and_never_exceed_what_was_asked_for():
    estimates = TokenEstimates()
    assert estimates.prompt_tokens((1, 2, 3)) == 3
    assert estimates.prompt_tokens("x" * 4_000) == 1_001
    assert estimates.output_tokens(None) == 256
    for _ in range(200):
        estimates.observe(text_length=1_000, prompt_tokens=1_000, output_tokens=40)
    assert estimates.prompt_tokens("x" * 4_000) in range(3_900, 4_100)
    assert estimates.output_tokens(None) == 40
    assert estimates.output_tokens(7) == 7
    assert estimates.output_tokens(1_000_000_000) == 40
