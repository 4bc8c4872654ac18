"""continuation: what an engine is sent for the rest of an answer, and when that is exact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.model import CAPABILITIES, ModelCard
from proxy.domain.output import FinishReason
from proxy.domain.request import PromptLimit, Sampling
from proxy.generation.stream import continuation
from tests.doubles.engine import CARD, FACTS

IDS = [5, 6, 7]
GUIDE = Constraint(kind=GuideKind.REGEX, text="a+", field="guided_regex")
WITHOUT = replace(CARD, capabilities=CAPABILITIES - {"resume"})


def asked(model: ModelCard = WITHOUT, **fields: object) -> EngineRequest:
    usual = {"id": "r1", "text": "hi", "timeout_s": 60.0, "sampling": Sampling()}
    return EngineRequest(**{**usual, "model": model, **fields})


HARD = {
    "constraint": GUIDE,
    "prompt_limit": PromptLimit(tokens=3),
    "sampling": Sampling(seed=1, presence_penalty=1.0, bad_words=("no",)),
}


def test_an_engine_with_resume_continues_whatever_it_is():
    request = asked(CARD, **HARD, max_tokens=9, echoes_prompt=True)
    assert continuation.obstacle(request) is None
    rest = continuation.continued(request, IDS, 4)
    assert rest == replace(request, generated=(5, 6, 7), echoes_prompt=False)
    assert continuation.known_end(replace(request, max_tokens=3), IDS, 4) is None


@pytest.mark.parametrize(
    ("sampling", "is_exact"),
    [
        (Sampling(), True),
        (Sampling(temperature=0.7, top_p=0.9), True),
        (Sampling(temperature=0.7, seed=1), False),
        (Sampling(temperature=0.0, seed=1), True),
        (Sampling(top_k=1, seed=1), True),
        (Sampling(temperature=0.0, repetition_penalty=1.2, logit_bias=((3, 1.0),)), True),
        (Sampling(temperature=0.0, presence_penalty=0.0), True),
        (Sampling(temperature=0.0, presence_penalty=0.1), False),
        (Sampling(temperature=0.0, frequency_penalty=0.1), False),
        (Sampling(temperature=0.0, bad_words=("no",)), False),
    ],
)
def test_which_sampling_other_engines_continue_exactly(sampling, is_exact):
    found = continuation.obstacle(asked(sampling=sampling))
    assert (found is None) == is_exact
    assert found is None or not found.is_final


@pytest.mark.parametrize(
    "request_",
    [
        asked(constraint=GUIDE),
        asked(prompt_limit=PromptLimit(tokens=3)),
        asked(replace(WITHOUT, facts=replace(FACTS, runtime="scripted"))),
        asked(replace(CARD, capabilities=CAPABILITIES - {"token_ids"})),
    ],
)
def test_what_no_setting_allows(request_):
    found = continuation.obstacle(request_)
    assert found is not None
    assert found.is_final


def test_other_engines_get_one_prompt_and_what_is_left_of_the_limits():
    request = asked(
        token_ids=(1, 2),
        max_tokens=10,
        token_cap=20,
        prompt_cap=2,
        sampling=Sampling(min_tokens=5, temperature=0.0),
    )
    rest = continuation.continued(request, IDS, 4)
    assert (rest.text, rest.token_ids, rest.generated) == ("hi", (1, 2, 5, 6, 7), ())
    assert (rest.max_tokens, rest.token_cap, rest.prompt_cap) == (7, None, None)
    assert rest.sampling == Sampling(min_tokens=2, temperature=0.0)
    assert continuation.continued(request, [5] * 5, 4).sampling.min_tokens is None


@pytest.mark.parametrize(
    ("max_tokens", "default", "cap", "left"),
    [
        (None, None, None, 128 - 10 - 3),
        (None, 50, None, 47),
        (None, 50, 40, 37),
        (None, 500, None, 128 - 10 - 3),
        (60, 50, 40, 57),
    ],
)
def test_the_limit_is_the_one_that_the_whole_answer_had(max_tokens, default, cap, left):
    model = replace(WITHOUT, facts=replace(FACTS, default_max_tokens=default))
    request = asked(model, max_tokens=max_tokens, token_cap=cap)
    assert continuation.continued(request, IDS, 10).max_tokens == left


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"max_tokens": 4}, None),
        ({"max_tokens": 3}, FinishReason.LENGTH),
        ({"token_cap": 3}, FinishReason.LENGTH),
        ({"sampling": Sampling(stop_token_ids=(7,))}, FinishReason.STOP),
        ({"sampling": Sampling(stop_token_ids=(6,))}, None),
        ({"sampling": Sampling(stop_token_ids=(7,), min_tokens=4)}, None),
    ],
)
def test_an_end_that_is_known_from_the_tokens(fields, end):
    assert continuation.known_end(asked(**fields), IDS, 10) is end


def test_end_tokens_of_the_model_end_an_answer_unless_they_are_ignored():
    model = replace(WITHOUT, facts=replace(FACTS, end_ids=(7,)))
    assert continuation.known_end(asked(model), IDS, 10) is FinishReason.STOP
    ignoring = asked(model, sampling=Sampling(ignore_eos=True))
    assert continuation.known_end(ignoring, IDS, 10) is None
    assert continuation.known_end(asked(), IDS, 125) is FinishReason.LENGTH
