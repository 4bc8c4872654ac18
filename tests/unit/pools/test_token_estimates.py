"""What a request to a model will probably take, as earlier ones show it."""

from __future__ import annotations

from hypothesis import strategies as st

from proxy.pools.pooled_engine import TokenEstimates

AMOUNT = st.integers(-5, 10_000)


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
