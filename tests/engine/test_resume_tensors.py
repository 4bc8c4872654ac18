"""resume_from: which of the ids are the prompt's, in the tokenizer and in the engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from admission import Admission, OperatorLimits
from port import BadParameter
from prompt_encoder import PromptEncoder
from refusal import Refusal
from request import Request
from request_tensors import generation_input, prompt_tokens
from tests.doubles.tensor_request import TensorRequest

DEMO = Path(__file__).parents[2] / "demo_model" / "shipped" / "tokenizer.json"
ADMISSION = Admission(context_length=16, vocab_size=2048)
NO_LIMITS = OperatorLimits()


@pytest.fixture(scope="module")
def encoder() -> PromptEncoder:
    return PromptEncoder(Tokenizer.from_file(str(DEMO)), ADMISSION)


def encoded(encoder: PromptEncoder, **tensors: list) -> tuple[list[int], list[int]]:
    """The prompt's and the generated ids."""
    request = Request(TensorRequest(**tensors))
    given, generated = request.split_ids()
    return list(encoder.prompt_ids(request, given, NO_LIMITS)), generated


def test_the_last_ids_were_generated_and_the_others_are_the_prompts(encoder):
    text = encoded(encoder, text_input=[b"Hello"])[0]
    assert encoded(encoder, input_ids=[5, 6, 7]) == ([5, 6, 7], [])
    assert encoded(encoder, input_ids=[5, 6, 7], resume_from=[0]) == ([5, 6, 7], [])
    assert encoded(encoder, input_ids=[5, 6, 7], resume_from=[2]) == ([5], [6, 7])
    only_generated = {"text_input": [b"Hello"], "input_ids": [6, 7], "resume_from": [2]}
    assert encoded(encoder, **only_generated) == (text, [6, 7])
    both = {"text_input": [b"Hello"], "input_ids": [5, 6, 7], "resume_from": [2]}
    assert encoded(encoder, **both) == ([*text, 5], [6, 7])


@pytest.mark.parametrize("keeps_start", [False, True])
@pytest.mark.parametrize("limit", [2, -1])
@pytest.mark.parametrize(
    "prompt", [{"text_input": [b"Tell me a long story of the sea"]}, {"input_ids": [9] * 20}]
)
def test_truncation_keeps_the_same_prompt_as_before_the_cut(encoder, prompt, limit, keeps_start):
    asked = {
        "max_tokens": [12],
        "truncate_prompt_tokens": [limit],
        "truncate_keeps_start": [keeps_start],
    }
    whole, _ = encoded(encoder, **prompt, **asked)
    ids = [*prompt.get("input_ids", ()), 70, 80]
    continued = {**prompt, "input_ids": ids, "resume_from": [2], **asked}
    assert encoded(encoder, **continued) == (whole, [70, 80])


def test_generated_ids_need_no_room_but_the_contexts():
    assert ADMISSION.new_tokens(10, 6) == 6
    ADMISSION.check_generated([5] * 6, 10)
    with pytest.raises(Refusal, match=r"resume_from is 7, .* at most 6: ") as caught:
        ADMISSION.check_generated([5] * 7, 10)
    assert caught.value.param == "resume_from"
    with pytest.raises(Refusal, match="token id 2048 at position 1") as caught:
        ADMISSION.check_generated([5, 2048], 10)
    assert caught.value.param == "resume_from"


def engine_request(**tensors: list) -> TensorRequest:
    return TensorRequest(request_output_len=[9], echo_prompt=[True], **tensors)


def test_the_engine_gets_prompt_and_answer_apart_and_echoes_only_a_new_answer():
    begun = engine_request(input_ids=[5, 6, 7], resume_from=[2])
    made = generation_input(begun)
    assert (made.prompt_ids, made.generated_ids, made.max_tokens) == ([5], [6, 7], 9)
    assert not made.echoes_prompt
    assert prompt_tokens(begun) == 1
    fresh = generation_input(engine_request(input_ids=[5, 6, 7], resume_from=[0]))
    assert (fresh.prompt_ids, fresh.generated_ids) == ([5, 6, 7], [])
    assert fresh.echoes_prompt


@pytest.mark.parametrize("resumed", [-1, 3, 4])
def test_the_engine_refuses_an_answer_without_a_prompt(resumed):
    request = engine_request(input_ids=[5, 6, 7], resume_from=[resumed])
    with pytest.raises(BadParameter, match="must be from 0 to 2: input_ids has 3") as caught:
        generation_input(request)
    assert caught.value.param == "resume_from"
    assert prompt_tokens(request) >= 0
