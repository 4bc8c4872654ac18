"""TensorRT-LLM's C++ backend behind its own ensemble, or behind `tensorrt_llm_bls`.

Read in NVIDIA/TensorRT-LLM, triton_backend/all_models/inflight_batcher_llm: ensemble/config.pbtxt
at 2a9abd95, tensorrt_llm_bls/config.pbtxt at 0193dbd4 and bff88ea8, 1/model.py at 0ef1f21e,
postprocessing/1/model.py at 2e2327b9. Upstream has deleted them since.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tritonclient.grpc import service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ProxyError
from proxy.triton import codec, tensors
from proxy.triton.dialects.dialect import Declared, Read, fitting, infer_request, too_long
from proxy.triton.dialects.text_answers import (
    Answer,
    AnswerReader,
    named,
    token_limit,
    trtllm_sampling,
)

SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "seed",
    "bad_words",
)
INPUTS = {name: name for name in (*SAMPLING, "max_tokens")}
ENSEMBLE, ENGINE_NAME = "ensemble", "tensorrt_llm_model_name"
TOO_LONG = re.compile(r"Prompt length \(\d+\) exceeds maximum input length")


class CppBackend:
    """See Dialect."""

    def capabilities(self, declared: Declared) -> Collection[str] | None:
        is_one = (
            (declared.backend == ENSEMBLE or ENGINE_NAME in declared.parameters)
            and declared.takes(
                text_input="BYTES", max_tokens="INT32", stream="BOOL", stop_words="BYTES"
            )
            and declared.gives(text_output="BYTES")
            and declared.required <= {"text_input", "max_tokens"}
        )
        if not is_one:
            return None
        found = {*fitting(INPUTS, declared.inputs)}
        if declared.has_guides and declared.takes(
            guided_decoding_guide="BYTES", guided_decoding_guide_type="BYTES"
        ):
            found.add("constraint")
        return found

    def notes(self, declared: Declared) -> list[str]:
        found = []
        if declared.stopped_by is None:
            found.append("it does not notice that a client left; the ensemble's engine does")
        if not declared.is_cumulative and declared.is_decoupled:
            found.append(
                "streams the text of one response at a time: characters of several tokens are lost"
            )
        return found

    def encode(self, request: EngineRequest) -> service_pb2.ModelInferRequest:
        facts, guide = request.model.facts, request.constraint
        assert facts.adopted is not None
        values = {**trtllm_sampling(request, SAMPLING), "max_tokens": token_limit(request)}
        # it makes tokens of each word alone, where a space before the word makes others
        words = request.sampling.bad_words or ()
        values["bad_words"] = [one for word in words for one in (word, f" {word.lstrip()}")] or None
        # it knows one end token itself; as stop words, special tokens end the answer as well
        ends = [
            facts.special_tokens[one].decode()
            for one in facts.end_ids
            if one in facts.special_tokens
        ]
        return infer_request(
            request,
            (
                ("text_input", request.text or ""),
                ("stream", facts.adopted.is_decoupled),
                ("exclude_input_in_output", True),
                ("return_num_input_tokens", True),
                ("return_num_output_tokens", True),
                ("stop_words", ends or None),
                ("guided_decoding_guide_type", None if guide is None else guide.kind.value),
                ("guided_decoding_guide", None if guide is None else guide.text),
                *named(values, INPUTS),
            ),
        )

    def reader(self, request: EngineRequest, prompt_tokens: int | None) -> Read:
        adopted = request.model.facts.adopted
        answer = Answer(
            prompt_tokens="num_input_tokens",
            tokens="num_output_tokens",
            is_cumulative=adopted is not None and adopted.is_cumulative,
        )
        return AnswerReader(request, answer, prompt_tokens).read

    def stop(self, request: EngineRequest) -> service_pb2.ModelInferRequest | None:
        """Triton does not tell the steps of an ensemble that its call was cancelled."""
        adopted = request.model.facts.adopted
        if adopted is None or adopted.stopped_by is None:
            return None
        return codec.stop_message(adopted.stopped_by, request.id, tensors.CPP_STOP_INPUTS)

    def error(self, message: str, request: EngineRequest) -> ProxyError | None:
        found = TOO_LONG.search(message)
        return too_long(f"{found[0]}.") if found else None
