"""What models of others are sent, and how their responses are read."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.image import Image
from proxy.domain.model import Adopted, Kind, TextTensors
from proxy.domain.output import FinishReason
from proxy.domain.request import Sampling
from proxy.triton import codec
from proxy.triton.codec import MalformedResponse
from proxy.triton.dialects.dialect import Declared
from proxy.triton.dialects.recognition import DIALECTS
from proxy.triton.local_tokenizer import local_tokenizer
from tests.doubles.engine import CARD, FACTS
from tests.unit.triton.test_codec import tensors as batched_tensors

VLLM_INPUTS = {
    "text_input": "BYTES", "stream": "BOOL", "sampling_parameters": "BYTES",
    "exclude_input_in_output": "BOOL", "return_finish_reason": "BOOL", "return_logprobs": "BOOL",
    "return_num_input_tokens": "BOOL", "return_num_output_tokens": "BOOL",
}  # fmt: skip
VLLM_OUTPUTS = {"text_output": "BYTES", "finish_reason": "BYTES", "num_output_tokens": "UINT32"}
NUMBERS = {"INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}


def request(kind, inputs, *, batches=False, decoupled=True, more=None, card=None, **fields):
    adopted = Adopted(
        kind=kind, inputs=inputs, outputs={}, has_batches=batches, is_decoupled=decoupled,
        **(more or {}),
    )  # fmt: skip
    facts = replace(FACTS, adopted=adopted)
    model = replace(CARD, facts=facts, **(card or {}))
    sampling = fields.pop("sampling", Sampling())
    return EngineRequest(id="r1", model=model, timeout_s=1, sampling=sampling, **fields)


def sent(asked: EngineRequest) -> dict[str, list]:
    message = DIALECTS[asked.model.facts.kind].encode(asked)
    if message.inputs[0].shape[:1] == [1] and len(message.inputs[0].shape) == 2:
        return batched_tensors(message)
    found = {}
    for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        if tensor.datatype == "BYTES":
            values = np.frombuffer(raw, np.uint8).tobytes()
            found[tensor.name] = [values[4:]] if len(tensor.shape) == 1 else values
        else:
            found[tensor.name] = np.frombuffer(raw, NUMBERS[tensor.datatype]).tolist()
    return found


def parameters(asked: EngineRequest) -> dict:
    return json.loads(sent(asked)["sampling_parameters"][0])


def response(final=False, **outputs) -> service_pb2.ModelInferResponse:
    found = service_pb2.ModelInferResponse()
    found.parameters["triton_final_response"].bool_param = final
    for name, value in outputs.items():
        found.outputs.add(name=name)
        if isinstance(value, int):
            raw = value.to_bytes(4, "little")
        else:
            raw = serialize_byte_tensor(np.array([value.encode()], dtype=object)).item()
        found.raw_output_contents.append(raw)
    return found


def read(asked: EngineRequest, *responses, prompt_tokens=None):
    reader = DIALECTS[asked.model.facts.kind].reader(asked, prompt_tokens)
    return [reader(one) for one in responses]


def text(messages) -> str:
    return b"".join(b"".join(one.delta.token_bytes) for one in messages if one.delta).decode()


def test_vllm_gets_the_parameters_by_its_own_names():
    sampling = Sampling(
        temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, seed=-3, presence_penalty=0.5, min_tokens=2,
        repetition_penalty=1.1, ignore_eos=True, stop_token_ids=(5,), bad_words=("no",),
        allowed_token_ids=(1, 2), top_log_probs=3,
    )  # fmt: skip
    asked = request(
        Kind.VLLM, VLLM_INPUTS, text="Hello", max_tokens=9, sampling=sampling, shows_specials=True,
        includes_stop=True, constraint=Constraint(GuideKind.REGEX, "[a-z]+"),
        card={"parent": "base", "name": "sql"},
    )  # fmt: skip
    assert parameters(asked) == {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "seed": 2**63 - 3,
        "presence_penalty": 0.5, "min_tokens": 2, "repetition_penalty": 1.1, "ignore_eos": True,
        "stop_token_ids": [5], "bad_words": ["no"], "allowed_token_ids": [1, 2], "logprobs": 3,
        "max_tokens": 9, "skip_special_tokens": False, "include_stop_str_in_output": True,
        "lora_name": "sql", "structured_outputs": '{"regex": "[a-z]+"}',
    }  # fmt: skip
    assert sent(asked)["text_input"] == [b"Hello"]
    assert sent(asked)["return_logprobs"] == [True]


def test_vllms_own_limit_of_16_tokens_is_never_meant():
    asked = request(Kind.VLLM, VLLM_INPUTS, text="Hello")
    assert parameters(asked) == {"max_tokens": 2**31 - 1}
    assert "return_logprobs" not in sent(asked)


@pytest.mark.parametrize(
    ("guide", "found"),
    [
        (Constraint(GuideKind.JSON), {"json_object": True}),
        (Constraint(GuideKind.JSON_SCHEMA, "{}"), {"json": "{}"}),
        (Constraint(GuideKind.GRAMMAR, "root ::= x"), {"grammar": "root ::= x"}),
        (Constraint(GuideKind.STRUCTURAL_TAG, "{}"), {"structural_tag": "{}"}),
    ],
)
def test_guides_are_structured_outputs(guide, found):
    asked = request(Kind.VLLM, VLLM_INPUTS, text="Hello", constraint=guide)
    assert json.loads(parameters(asked)["structured_outputs"]) == found


def test_a_stream_of_vllm():
    asked = request(Kind.VLLM, VLLM_INPUTS, text="Hello")
    one = response(text_output="Grü", finish_reason="None", num_output_tokens=2, num_input_tokens=4)
    held = response(text_output="", finish_reason="None", num_output_tokens=1, num_input_tokens=4)
    last = response(
        text_output="ße", finish_reason="stop", num_output_tokens=3, num_input_tokens=4, final=True
    )
    found = read(asked, one, held, last)
    assert text(found) == "Grüße"
    assert [len(each.delta.token_bytes) for each in found] == [2, 1, 3]
    assert [each.delta.prompt_tokens for each in found] == [4, None, None]
    assert [each.delta.finish for each in found] == [None, None, FinishReason.STOP]
    assert found[-1].is_final


def refusal(message: str, **fields) -> tuple[ErrorCode, str]:
    found = DIALECTS[Kind.VLLM].error(message, request(Kind.VLLM, VLLM_INPUTS, text="x", **fields))
    return found.code, found.message


GUIDE = {"constraint": Constraint(GuideKind.REGEX, "a")}


def test_a_dead_engine_is_no_fault_of_a_guide():
    died = "Error generating stream: EngineCore encountered an issue. See stack trace (above)."
    assert refusal(died, **GUIDE)[0] is ErrorCode.MODEL_UNAVAILABLE
    assert refusal(died)[0] is ErrorCode.MODEL_UNAVAILABLE


@pytest.mark.parametrize("reason", ["", "'NoneType' object has no attribute 'lora_name'"])
def test_where_vllm_gives_no_reason_its_log_has_it(reason):
    code, message = refusal(f"Error generating stream: {reason}", **GUIDE)
    assert (code, "its log" in message) == (ErrorCode.INVALID_PARAMETER, True)
    picture = Image(media_type="image/png", base64="")
    code, message = refusal(f"Error generating stream: {reason}", images=(picture,))
    assert (code, "its log" in message) == (ErrorCode.UNSUPPORTED_PARAMETER, True)


def test_the_names_of_all_adapters_are_not_told():
    assert "poet" not in refusal("LoRA x is not supported, we currently support ['poet']")[1]


def test_a_guide_that_vllm_cannot_compile_is_the_callers_error():
    failed = response(text_output="", finish_reason="error", num_output_tokens=0, final=True)
    guide = Constraint(GuideKind.GRAMMAR, "root ::=")
    with pytest.raises(InvalidRequest, match="cannot be compiled"):
        read(request(Kind.VLLM, VLLM_INPUTS, text="Hello", constraint=guide), failed)
    with pytest.raises(MalformedResponse, match="error"):
        read(request(Kind.VLLM, VLLM_INPUTS, text="Hello"), failed)


def entry(*tokens) -> str:
    return json.dumps(
        [
            {str(token): {"logprob": log_prob, "rank": rank, "decoded_token": word}}
            | {"77": {"logprob": -0.1, "rank": 1, "decoded_token": "best"}}
            for token, log_prob, rank, word in tokens
        ]
    )


def test_log_probs_of_vllm_have_ids_and_the_best_first():
    asked = request(Kind.VLLM, VLLM_INPUTS, text="Hello", sampling=Sampling(top_log_probs=1))
    found = read(
        asked,
        response(
            text_output=" a b", finish_reason="None", num_output_tokens=2, num_input_tokens=1,
            logprobs=entry((5, -2.0, 3, " a"), (6, -1.0, 2, " b")),
        ),
    )[0].delta  # fmt: skip
    assert found.token_bytes == (b" a", b" b")
    assert found.token_ids == (5, 6)
    assert [one.log_prob for one in found.log_probs] == [-2.0, -1.0]
    assert [one.top[0].token_bytes for one in found.log_probs] == [b"best", b"best"]


def test_a_guide_leaves_fewer_alternatives_than_were_asked_for():
    asked = request(Kind.VLLM, VLLM_INPUTS, text="Hello", sampling=Sampling(top_log_probs=2))
    logprobs = (
        '[{"2": {"logprob": 0.0, "rank": 1, "decoded_token": "x"}, '
        '"0": {"logprob": -Infinity, "rank": 2, "decoded_token": "y"}}]'
    )
    (found,) = read(asked, response(text_output="x", finish_reason="None", logprobs=logprobs))
    assert [one.token_bytes for one in found.delta.log_probs[0].top] == [b"x"]


def test_log_probs_whose_texts_do_not_make_the_answers_text():
    asked = request(Kind.VLLM, VLLM_INPUTS, text="Hello", sampling=Sampling(top_log_probs=0))
    logprobs = entry((5, -2.0, 3, "\ufffd"), (6, -1.0, 2, "\ufffd"))
    found = read(asked, response(text_output="🙂", finish_reason="None", logprobs=logprobs))
    assert text(found) == "🙂"
    assert found[0].delta.log_probs[0].top == ()


@pytest.mark.parametrize("logprobs", ["{", "[{}]", '[{"a": {}}]', "[1]"])
def test_log_probs_that_cannot_be_read(logprobs):
    asked = request(Kind.VLLM, VLLM_INPUTS, text="Hello", sampling=Sampling(top_log_probs=0))
    with pytest.raises(MalformedResponse):
        read(asked, response(text_output="a", logprobs=logprobs))


@pytest.mark.parametrize(
    ("kind", "message", "code"),
    [
        (
            Kind.VLLM,
            "Error generating stream: The decoder prompt (length 600) is longer than the maximum "
            "model length of 512. Make sure that `max_model_len` is no smaller.",
            ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        ),
        (
            Kind.VLLM,
            "LoRA feature is not enabled.",
            ErrorCode.UNSUPPORTED_PARAMETER,
        ),
        (
            Kind.VLLM,
            "LoRA x is not supported, we currently support ['y']",
            ErrorCode.UNSUPPORTED_PARAMETER,
        ),
        (
            Kind.VLLM,
            "Error generating stream: Model m does not support 'generate' request",
            ErrorCode.UNSUPPORTED_PARAMETER,
        ),
        (
            Kind.LLMAPI,
            "The sum of prompt length (9.0), query length (0) should not exceed "
            "max_num_tokens (8)",
            ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        ),
        (
            Kind.CPP,
            "in ensemble 'e', Prompt length (9) exceeds maximum input length (8).",
            ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        ),
        (
            Kind.VLLM,
            "Error generating stream: allowed_token_ids is not None and empty! "
            "(parameter=allowed_token_ids, value=[])",
            ErrorCode.INVALID_PARAMETER,
        ),
        (Kind.VLLM, "Error generating stream: something else", None),
        (Kind.CPP, "something else", None),
        (Kind.TEXT, "Prompt length (9) exceeds maximum input length (8).", None),
    ],
)  # fmt: skip
def test_errors_mean_what_upstream_means(kind, message, code):
    asked = request(kind, VLLM_INPUTS, text="Hello")
    found = DIALECTS[kind].error(message, asked)
    assert (None if found is None else found.code) == code


LLMAPI_INPUTS = {
    "text_input": "BYTES", "streaming": "BOOL", "return_finish_reason": "BOOL",
    "sampling_param_max_tokens": "INT32", "sampling_param_temperature": "FP32",
    "sampling_param_top_k": "INT32", "sampling_param_top_p": "FP32",
    "sampling_param_seed": "UINT64",
    "sampling_param_exclude_input_from_output": "BOOL",
}  # fmt: skip


def test_llmapi_is_not_greedy_by_default_and_takes_no_temperature_of_0():
    found = sent(request(Kind.LLMAPI, LLMAPI_INPUTS, text="Hello", max_tokens=4))
    assert found["sampling_param_temperature"] == [1.0]
    assert (found["sampling_param_top_k"], found["sampling_param_top_p"]) == ([0], [1.0])
    other = sent(request(Kind.LLMAPI, LLMAPI_INPUTS, text="Hello", max_tokens=4))
    assert found["sampling_param_seed"] != other["sampling_param_seed"]
    greedy = Sampling(temperature=0.0)
    found = sent(request(Kind.LLMAPI, LLMAPI_INPUTS, text="Hello", sampling=greedy))
    assert "sampling_param_temperature" not in found
    assert found["sampling_param_top_k"] == [1]
    assert found["streaming"] == found["sampling_param_exclude_input_from_output"] == [True]


def test_llmapi_repeats_the_text_so_far():
    asked = request(Kind.LLMAPI, LLMAPI_INPUTS, text="Hello", max_tokens=9)
    found = read(
        asked,
        response(text_output="a", finish_reason="None"),
        response(text_output="a\ufffd", finish_reason="None"),
        response(text_output="a🙂", finish_reason="None"),
        response(text_output="a🙂!", finish_reason="length"),
        response(final=True),
        prompt_tokens=3,
    )
    assert text(found) == "a🙂!"
    assert found[0].delta.prompt_tokens == 3
    assert [each.delta and each.delta.finish for each in found] == [
        None, None, None, FinishReason.LENGTH, None,
    ]  # fmt: skip


def test_one_whole_answer_is_counted_and_ended():
    asked = request(Kind.LLMAPI, LLMAPI_INPUTS, decoupled=False, text="Hello", max_tokens=99)
    assert sent(asked)["streaming"] == [False]
    (found,) = read(asked, response(text_output="four characters", final=True))
    assert found.delta.finish is FinishReason.STOP
    assert len(found.delta.token_bytes) == 4


CPP_INPUTS = {
    "text_input": "BYTES", "max_tokens": "INT32", "stream": "BOOL", "stop_words": "BYTES",
    "bad_words": "BYTES", "top_k": "INT32", "temperature": "FP32",
    "return_num_output_tokens": "BOOL",
}  # fmt: skip


def test_the_cpp_ensemble_has_a_batch_dimension_and_all_end_tokens_as_stop_words():
    asked = request(
        Kind.CPP, CPP_INPUTS, batches=True, text="Hello", max_tokens=4,
        sampling=Sampling(bad_words=("no", "never")),
    )  # fmt: skip
    facts = replace(asked.model.facts, end_ids=(2, 3), special_tokens={2: b"</s>", 3: b"<|eot|>"})
    found = sent(replace(asked, model=replace(asked.model, facts=facts)))
    assert found["stop_words"] == [b"</s>", b"<|eot|>"]
    assert sorted(found["bad_words"]) == [b" never", b" no", b"never", b"no"]
    assert found["max_tokens"] == [4]


@pytest.mark.parametrize(("tokens", "reason"), [(4, "length"), (3, "stop")])
def test_the_cpp_ensemble_does_not_say_why_it_ended(tokens, reason):
    asked = request(Kind.CPP, CPP_INPUTS, batches=True, text="Hello", max_tokens=4)
    found = read(
        asked,
        response(text_output="a", num_output_tokens=2, num_input_tokens=7),
        response(text_output="b", num_output_tokens=tokens - 2, num_input_tokens=7),
        response(final=True),
    )
    assert text(found) == "ab"
    assert found[0].delta.prompt_tokens == 7
    assert found[-1].delta.finish is FinishReason(reason)


def test_a_stop_goes_to_the_engine_of_an_ensemble_and_to_nothing_else():
    asked = request(Kind.CPP, CPP_INPUTS, more={"stopped_by": "tensorrt_llm"}, text="Hello")
    stop = DIALECTS[Kind.CPP].stop(asked)
    assert (stop.model_name, stop.id) == ("tensorrt_llm", "r1")
    assert batched_tensors(stop)["stop"] == [True]
    for kind in (Kind.VLLM, Kind.LLMAPI, Kind.TEXT, Kind.CPP):
        assert DIALECTS[kind].stop(request(kind, CPP_INPUTS, text="Hello")) is None


TENSORS = TextTensors(
    prompt="PROMPT", text="OUTPUT", inputs={"max_tokens": "MAX", "temperature": "TEMP"}
)


def test_a_text_model_gets_what_its_mapping_names():
    inputs = {"PROMPT": "BYTES", "MAX": "INT64", "TEMP": "FP64", "OTHER": "BYTES"}
    asked = request(
        Kind.TEXT, inputs, more={"tensors": TENSORS}, text="Hello", max_tokens=4,
        sampling=Sampling(temperature=0.5),
    )  # fmt: skip
    message = DIALECTS[Kind.TEXT].encode(asked)
    assert [one.name for one in message.inputs] == ["PROMPT", "MAX", "TEMP"]
    assert message.raw_input_contents[1] == (4).to_bytes(8, "little")
    assert np.frombuffer(message.raw_input_contents[2], np.float64).tolist() == [0.5]


@pytest.mark.parametrize(
    ("pieces", "cumulative"),
    [
        (["Hello", ", wor", "ld"], False),
        (["Hel", "lo, world"], False),
        (["Hello", "Hello, wor", "Hello, world"], True),
        (["Hello, world"], True),
    ],
)
def test_a_prompt_that_the_answer_begins_with_is_left_out(pieces, cumulative):
    tensors = replace(TENSORS, repeats_prompt=True, is_cumulative=cumulative)
    asked = request(Kind.TEXT, {"PROMPT": "BYTES"}, more={"tensors": tensors}, text="Hello")
    found = read(asked, *(response(OUTPUT=one) for one in pieces), response(final=True))
    assert text(found) == ", world"


def test_an_answer_that_only_looks_like_the_prompt_stays():
    tensors = replace(TENSORS, repeats_prompt=True)
    asked = request(Kind.TEXT, {"PROMPT": "BYTES"}, more={"tensors": tensors}, text="Hello")
    assert text(read(asked, response(OUTPUT="Help"), response(final=True))) == "Help"


def test_vllm_gets_images_as_base64_in_their_order():
    images = (Image(media_type="image/png", base64="AAAA"), Image(base64="BBBB"))
    asked = request(Kind.VLLM, {**VLLM_INPUTS, "image": "BYTES"}, text="<img><img>", images=images)
    message = DIALECTS[Kind.VLLM].encode(asked)
    names = [one.name for one in message.inputs]
    at = names.index("image")
    assert list(message.inputs[at].shape) == [2]
    assert codec.bytes_elements(message.raw_input_contents[at]) == (b"AAAA", b"BBBB")
    assert "image" not in sent(request(Kind.VLLM, {**VLLM_INPUTS, "image": "BYTES"}, text="a"))


EMBEDS = {**VLLM_INPUTS, "embedding_request": "BYTES"}


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"text": "hi", "embeds": 0}, {"input": "hi", "pooling_params": {}}),
        (
            {"token_ids": (1, 2), "embeds": 64},
            {"input": [1, 2], "pooling_params": {"dimensions": [64]}},
        ),
    ],
)
def test_vllm_is_asked_for_an_embedding_by_json(fields, body):
    message = DIALECTS[Kind.VLLM].encode(request(Kind.VLLM, EMBEDS, **fields))
    raw = dict(zip([one.name for one in message.inputs], message.raw_input_contents, strict=True))
    assert json.loads(codec.bytes_elements(raw["embedding_request"])[0]) == body
    assert codec.bytes_elements(raw["text_input"]) == (b"",), "an input that is required"
    assert raw["return_num_input_tokens"] == b"\x01"


def test_vllms_embedding_becomes_32_bit_floats_in_one_delta():
    asked = request(Kind.VLLM, EMBEDS, text="hi", embeds=0)
    first, last = read(
        asked,
        response(text_output="[0.5, -1, 1e-3]", num_input_tokens=7),
        response(final=True),
    )
    assert struct.unpack("<3f", first.delta.embedding) == pytest.approx((0.5, -1, 1e-3))
    assert (first.delta.prompt_tokens, first.delta.finish) == (7, FinishReason.STOP)
    assert (last.delta, last.is_final) == (None, True)


@pytest.mark.parametrize("text", ["", "N/A", "[NaN]", "7", '["a"]', "[1e400]", "[[1]]", "{}x"])
def test_an_embedding_that_is_no_list_of_numbers_is_malformed(text):
    with pytest.raises(MalformedResponse):
        read(request(Kind.VLLM, EMBEDS, text="hi", embeds=0), response(text_output=text))


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("Error generating stream: Model smol does not support 'embed' request", "model"),
        (
            "Error generating stream: Model '/w' does not support Matryoshka embeddings; "
            "dimensions must be unset (received dimensions=64).",
            "dimensions",
        ),
    ],
)
def test_what_vllm_says_of_embeddings_is_the_callers_field(message, param):
    error = DIALECTS[Kind.VLLM].error(message, request(Kind.VLLM, EMBEDS, text="a"))
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED_PARAMETER, param)
    assert "/w" not in error.message


def test_what_can_embed_and_see_is_what_declares_the_inputs():
    config = {"embeddings": "embedding_request", "images": "image"}
    for capability, name in config.items():
        for inputs in ({**EMBEDS, "image": "BYTES"}, {**VLLM_INPUTS}):
            declared = Declared(
                name="m", backend="vllm", inputs=inputs, outputs=VLLM_OUTPUTS,
                required=frozenset({"text_input"}), parameters={}, is_decoupled=True,
                has_batches=False, stopped_by=None, has_guides=False,
            )  # fmt: skip
            found = DIALECTS[Kind.VLLM].capabilities(declared)
            assert (capability in found) is (name in inputs)


def test_tokens_that_no_response_counts_are_counted_at_the_end():
    """As llmapi sends several tokens at a time with speculative decoding."""
    inputs = {"text_input": "BYTES", "streaming": "BOOL"}
    more = {"tokenizer": "demo_model/shipped"}
    one = response(text_output="I am the demo", finish_reason="None")
    last = response(text_output="I am the demo model.", finish_reason="stop", final=True)
    found = read(request(Kind.LLMAPI, inputs, text="Hello", more=more), one, last)
    counts = [len(each.delta.token_bytes) for each in found]
    counted = local_tokenizer("demo_model/shipped").count("I am the demo model.")
    assert sum(counts) == counted + 1  # the end token has no text
    assert text(found) == "I am the demo model."


def test_a_value_that_does_not_fit_into_the_models_tensor_is_the_callers():
    inputs = {"PROMPT": "BYTES", "SEED": "INT32"}
    tensors = TextTensors(prompt="PROMPT", text="OUTPUT", inputs={"seed": "SEED"})
    asked = request(
        Kind.TEXT, inputs, text="a", more={"tensors": tensors}, sampling=Sampling(seed=2**40)
    )
    with pytest.raises(InvalidRequest, match="SEED") as raised:
        sent(asked)
    assert raised.value.param == "seed"


# What reads no cached prefix of others, and what becomes of a vLLM that does not know the word.
UNKNOWN = "Error generating stream: 'NoneType' object has no attribute 'lora_name'"


@pytest.mark.parametrize("reads", [True, False])
def test_vllm_reads_no_cached_prefix_where_tenants_are_kept_apart(reads):
    asked = request(Kind.VLLM, VLLM_INPUTS, text="x", reads_cache=reads)
    found = json.loads(sent(asked)["sampling_parameters"][0])
    assert found.get("skip_reading_prefix_cache", False) is not reads
    error = DIALECTS[Kind.VLLM].error(UNKNOWN, asked)
    assert (error is None) is reads
    if error is not None:
        assert "prefix_cache: shared" in error.detail
        assert "prefix" not in error.message


@pytest.mark.parametrize("keeps", [True, False])
def test_a_stream_that_may_be_continued_has_ids_and_the_engines_own_text(keeps):
    inputs, first = VLLM_INPUTS, {"65": {"logprob": -0.5, "rank": 1, "decoded_token": ""}}
    asked = request(Kind.VLLM, inputs, text="x", keeps_ids=keeps)
    assert ("return_logprobs" in sent(asked)) is keeps
    answered = response(
        text_output="A", num_output_tokens=1, finish_reason="None", logprobs=json.dumps([first])
    )
    delta = DIALECTS[Kind.VLLM].reader(asked, None)(answered).delta
    assert (delta.token_ids, delta.token_bytes) == ((65,) if keeps else (), (b"A",))
    assert not delta.log_probs
