"""Stands in for the models around TensorRT-LLM's C++ backend, and for that backend.

Upstream: inflight_batcher_llm, preprocessing 01259b15, postprocessing 2e2327b9, tensorrt_llm_bls
0ef1f21e, and what cpp/tensorrt_llm/batch_manager/llmRequest.cpp returns.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from stand_in import FINAL, StandIn, Vocabulary, flag, strings, tensor, text

from port import FinishReason, GenerationInput, Guide, SamplingParams, Token
from request_tensors import scalar

GUIDES = ("json", "json_schema", "regex", "ebnf_grammar")  # it ignores any other kind
SAME = ("temperature", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens")


def _words(request: Any, name: str) -> tuple[tuple[int, ...], ...]:
    given = pb_utils.get_input_tensor_by_name(request, name)
    if given is None:
        return ()
    ids, ends = given.as_numpy().reshape(2, -1).tolist()
    ends = [end for end in ends if end >= 0]
    return tuple(tuple(ids[start:end]) for start, end in zip([0, *ends], ends, strict=False))


class Engine(StandIn):
    """Model `tensorrt_llm`."""

    def start(self, request: Any) -> None:
        if flag(request, "stop"):
            self.cancel(request.request_id())
            request.get_response_sender().send(flags=FINAL)
            return
        ids = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy().ravel().tolist()
        most = self.words.context_length
        if len(ids) >= most:
            raise ValueError(
                f"Prompt length ({len(ids)}) exceeds maximum input length ({most - 1}). Set log "
                "level to info and check TRTGptModel logs for how maximum input length is set"
            )
        wanted = self._input(request, ids)
        streams = flag(request, "streaming")
        prompt = [] if streams or flag(request, "exclude_input_in_output") else ids
        asked = {name: flag(request, f"return_{name}") for name in EngineAnswer.SWITCHES}
        self.generate(request, wanted, EngineAnswer(ids, prompt, asked), streams=streams)

    def refuse(self, request: Any, message: str) -> None:
        response = pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
        request.get_response_sender().send(response, flags=FINAL)

    def _input(self, request: Any, ids: list[int]) -> GenerationInput:
        stops = [word[0] for word in _words(request, "stop_words_list") if len(word) == 1]
        end, kind = scalar(request, "end_id"), text(request, "guided_decoding_guide_type")
        given = {name: scalar(request, name) for name in SAME}
        top_k, top_p = scalar(request, "runtime_top_k"), scalar(request, "runtime_top_p")
        sampling = SamplingParams(
            **{name: value for name, value in given.items() if value is not None},
            top_k=1 if top_k is None and not top_p else top_k or 0,  # greedy by default
            top_p=top_p or 1.0,
            seed=scalar(request, "seed") or 0,
            ignore_eos=True,
            stop_token_ids=frozenset([*stops, *([end] if end is not None and end >= 0 else [])]),
            bad_words=_words(request, "bad_words_list"),
            log_probs=0 if flag(request, "return_log_probs") else None,
        )
        return GenerationInput(
            prompt_ids=ids,
            max_tokens=min(
                scalar(request, "request_output_len"), self.words.context_length - len(ids)
            ),
            sampling=sampling,
            guide=Guide.of(kind, text(request, "guided_decoding_guide"))
            if kind in GUIDES
            else None,
        )


class EngineAnswer:
    """New ids in each response; log-probabilities of all of them so far."""

    SWITCHES = ("log_probs", "num_input_tokens", "num_output_tokens")

    def __init__(self, ids: list[int], prompt: list[int], asked: dict[str, bool]) -> None:
        self._ids, self._prompt, self._asked = ids, prompt, asked
        self._log_probs: list[float] = []

    def __call__(self, tokens: list[Token], finish: FinishReason | None) -> list[Any]:
        ids, self._prompt = [*self._prompt, *(one.id for one in tokens)], []
        tensors = [
            tensor("output_ids", [[ids]], np.int32),
            tensor("sequence_length", [[len(ids)]], np.int32),
        ]
        if self._asked["log_probs"]:
            self._log_probs += [
                one.log_probs.sampled for one in tokens if one.log_probs is not None
            ]
            tensors.append(tensor("output_log_probs", [[self._log_probs]], np.float32))
            tensors.append(tensor("cum_log_probs", [[sum(self._log_probs)]], np.float32))
        if self._asked["num_input_tokens"]:
            tensors.append(tensor("num_input_tokens", [[len(self._ids)]], np.int32))
        if self._asked["num_output_tokens"]:
            tensors.append(tensor("num_output_tokens", [[len(tokens)]], np.int32))
        return tensors


class WithTokenizer:
    def initialize(self, args: dict[str, str]) -> None:
        folder = Path(args["model_repository"], args["model_version"])
        options = json.loads((folder / "stand_in.json").read_text(encoding="utf-8"))
        self.words = Vocabulary(Path(options["artifacts"]))


class Preprocessing(WithTokenizer):
    def execute(self, requests: list[Any]) -> list[Any]:
        return [pb_utils.InferenceResponse(list(self._tensors(one))) for one in requests]

    def _tensors(self, request: Any) -> Iterator[Any]:
        ids = self.words.ids(text(request, "QUERY"))
        end, pad = scalar(request, "END_ID"), scalar(request, "PAD_ID")
        first = self.words.end_ids[0]
        yield tensor("INPUT_ID", [ids], np.int32)
        yield tensor("REQUEST_INPUT_LEN", [[len(ids)]], np.int32)
        yield tensor("DECODER_INPUT_ID", [[first]], np.int32)
        yield tensor("REQUEST_DECODER_INPUT_LEN", [[1]], np.int32)
        yield tensor("REQUEST_OUTPUT_LEN", [[scalar(request, "REQUEST_OUTPUT_LEN")]], np.int32)
        yield tensor("BAD_WORDS_IDS", self._words(strings(request, "BAD_WORDS_DICT")), np.int32)
        yield tensor("STOP_WORDS_IDS", self._words(strings(request, "STOP_WORDS_DICT")), np.int32)
        yield tensor("EMBEDDING_BIAS", np.empty([1, 0]), np.float32)
        yield tensor("OUT_END_ID", [[first if end is None else end]], np.int32)
        yield tensor("OUT_PAD_ID", [[first if pad is None else pad]], np.int32)

    def _words(self, given: list[str]) -> Any:
        encoded = [ids for ids in map(self.words.ids, given) if ids]
        if not given:
            return np.empty([1, 2, 0])
        flat = [token for ids in encoded for token in ids] or [0]
        ends = np.cumsum([len(ids) for ids in encoded]).tolist()
        return [[flat, [*ends, *[-1] * (len(flat) - len(ends))]]]


class Postprocessing(WithTokenizer):
    """Decodes each response by itself, so that half a character becomes U+FFFD."""

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._decoded(one) for one in requests]

    def _decoded(self, request: Any) -> Any:
        ids = pb_utils.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy().ravel()
        length = scalar(request, "SEQUENCE_LENGTH")
        raw = b"".join(self.words.bytes_of(int(one)) for one in ids[:length])
        shown = raw.decode("utf-8", "replace").encode()
        return pb_utils.InferenceResponse([tensor("OUTPUT", [shown], np.object_)])


# What Bls passes on: to preprocessing, and from there and from its own inputs to the engine.
RENAMED = {"top_k": "runtime_top_k", "top_p": "runtime_top_p", "stream": "streaming"}
PASSED = (
    *("top_k", "top_p", "temperature", "repetition_penalty", "min_tokens", "presence_penalty"),
    *("frequency_penalty", "seed", "return_log_probs", "stream", "exclude_input_in_output"),
    *("guided_decoding_guide_type", "guided_decoding_guide"),
    *("return_num_input_tokens", "return_num_output_tokens"),
)
QUERY = {
    "text_input": "QUERY",
    "max_tokens": "REQUEST_OUTPUT_LEN",
    "bad_words": "BAD_WORDS_DICT",
    "stop_words": "STOP_WORDS_DICT",
    "end_id": "END_ID",
}
ENCODED = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "STOP_WORDS_IDS": "stop_words_list",
    "BAD_WORDS_IDS": "bad_words_list",
    "OUT_END_ID": "end_id",
}


class Bls:
    """Model `tensorrt_llm_bls`: calls the three others, under a request id of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        self._accumulates = parameters["accumulate_tokens"]["string_value"] == "true"

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                for response in self._responses(request):
                    sender.send(response)
            except Exception as error:
                text = f"Traceback (most recent call last):\n  …\nTritonModelException: {error}\n"
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(text)))
            sender.send(flags=FINAL)

    def _responses(self, request: Any) -> Iterator[Any]:
        if not (scalar(request, "max_tokens") or 0) > 0:
            raise ValueError("max_tokens must be a single value > 0")
        encoded = self._ask("preprocessing", _renamed(request, QUERY), [*ENCODED])
        inputs = [_as(one, ENCODED[one.name()]) for one in encoded.output_tensors()]
        inputs += _renamed(request, {name: RENAMED.get(name, name) for name in PASSED})
        wanted = ["output_ids", "sequence_length", "num_input_tokens", "num_output_tokens"]
        call = pb_utils.InferenceRequest(
            model_name="tensorrt_llm",
            requested_output_names=[*wanted, "output_log_probs", "cum_log_probs"],
            inputs=inputs,
            request_id=str(uuid.uuid4()),
        )
        so_far: list[int] = []
        for response in call.exec(decoupled=True):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            found = {one.name(): one for one in response.output_tensors()}
            if "output_ids" in found:
                yield self._response(found, so_far)

    def _response(self, found: dict[str, Any], so_far: list[int]) -> Any:
        ids = found.pop("output_ids").as_numpy().ravel().tolist()
        found.pop("sequence_length")
        if self._accumulates:
            so_far += ids
            ids = [*so_far]
        inputs = [
            tensor("TOKENS_BATCH", [[ids]], np.int32),
            tensor("SEQUENCE_LENGTH", [[len(ids)]], np.int32),
        ]
        decoded = self._ask("postprocessing", inputs, ["OUTPUT"]).output_tensors()[0]
        passed = [_as(one, name) for name, one in found.items()]
        return pb_utils.InferenceResponse([_as(decoded, "text_output"), *passed])

    def _ask(self, model: str, inputs: list[Any], outputs: list[str]) -> Any:
        call = pb_utils.InferenceRequest(
            model_name=model, requested_output_names=outputs, inputs=inputs
        )
        response = call.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return response


def _as(one: Any, name: str) -> Any:
    return pb_utils.Tensor(name, one.as_numpy())


def _renamed(request: Any, names: dict[str, str]) -> list[Any]:
    found = {name: pb_utils.get_input_tensor_by_name(request, name) for name in names}
    made = {names[name]: one.as_numpy() for name, one in found.items() if one is not None}
    return [
        pb_utils.Tensor(name, one.reshape(1, -1) if one.ndim == 1 else one)
        for name, one in made.items()
    ]
