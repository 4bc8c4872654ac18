"""Triton model `tokenizer`: text or ids -> input_ids, and how many new tokens may follow.

Refuses what cannot fit, and guides that cannot be used, before the engine sees it. An error's
message is JSON `{"code", "param", "message"}`, which the proxy turns into the API's error.
"""

from __future__ import annotations

import asyncio  # noqa: F401  Triton's stub imports it, at the first request if nobody has
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

from admission import Admission, Limits, Refusal
from bad_words_list import word_list
from executor_inputs import ExecutorInputs
from guide_check.check import KIND_PARAM, MB, TEXT_PARAM, GuideCheck
from plain_spans.encoder import PlainSpans
from prompt_truncation import START_CHARACTERS_A_TOKEN, PromptCut

CUT_PARAM = "truncate_prompt_tokens"
# Of a caller that asks again: the longest that a guide holds up the prompts behind it.
GUIDE_PATIENCE_S = 0.1


class TritonPythonModel:
    """One prompt a request; the tokenizer is the model's own tokenizer.json."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config["parameters"].items()}
        artifacts = Path(args["model_repository"], parameters["artifacts_dir"])
        self._guide_check = GuideCheck(
            artifacts / "guide.json",
            timeout_s=float(parameters["guide_timeout_s"]),
            memory_bytes=int(parameters["guide_memory_mb"]) * MB,
            kinds=[kind for kind in parameters["guide_kinds"].split(",") if kind],
        )
        self._guide_check.start()  # beside the rest of the start
        self._tokenizer = Tokenizer.from_file(str(artifacts / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._plain_spans = PlainSpans(self._tokenizer)
        self._admission = Admission(
            context_length=int(parameters["context_length"]),
            vocab_size=int(parameters["vocab_size"]),
            default_max_tokens=int(parameters.get("default_max_tokens", 0)) or None,
        )
        self._executor_inputs = (
            ExecutorInputs(
                end_ids=tuple(int(i) for i in parameters["executor_end_ids"].split(",") if i),
                logits_size=int(parameters["logits_size"]),
            )
            if "executor_end_ids" in parameters
            else None
        )
        self._guide_check.wait_until_started()

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]

    def finalize(self) -> None:
        self._guide_check.close()

    def _respond(self, request: Any) -> Any:
        try:
            self._check_guide(request)
            limits = Limits(
                default_max_tokens=_limit(request, "default_max_tokens"),
                prompt_tokens=_limit(request, "max_prompt_tokens"),
            )
            ids = self._prompt_ids(request, limits)
            self._admission.check_prompt(len(ids), limits)
            output_len = self._admission.output_len(
                ids,
                _scalar(request, "max_tokens"),
                limits,
                may_be_none=bool(_scalar(request, "echo_prompt")),
            )
            bad_words = word_list(self._bad_words(request), self._encode_word)
            others = self._for_executor(request, len(ids))
        except Refusal as refusal:
            error = pb_utils.TritonError(refusal.as_json(), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("input_ids", np.array([ids], dtype=np.int32)),
                pb_utils.Tensor("request_output_len", np.array([[output_len]], dtype=np.int32)),
                pb_utils.Tensor("bad_words_list", bad_words),
                *(pb_utils.Tensor(name, array) for name, array in others.items()),
            ]
        )

    def _for_executor(self, request: Any, prompt_tokens: int) -> dict[str, Any]:
        """What only TensorRT-LLM's C++ backend wants."""
        if self._executor_inputs is None:
            return {}
        return self._executor_inputs.of(partial(_elements, request), prompt_tokens)

    def _prompt_ids(self, request: Any, limits: Limits) -> list[int]:
        """text_input's tokens, then input_ids."""
        ids: list[int] = []
        text, cut = _scalar(request, "text_input"), self._cut(request, limits)
        given = pb_utils.get_input_tensor_by_name(request, "input_ids")
        if cut is not None and text is not None and given is not None:
            raise Refusal("invalid_parameter", CUT_PARAM, "text and ids together are not cut")
        if text is not None:
            special = _scalar(request, "add_special_tokens")
            adds_special = special is None or bool(special)
            ids += self._text_ids(request, text, cut, limits, add_special_tokens=adds_special)
        if given is not None:
            given_ids = self._admission.checked_ids(given.as_numpy().ravel().tolist())
            ids += given_ids if cut is None else cut.of_ids(given_ids)
        return ids

    def _cut(self, request: Any, limits: Limits) -> PromptCut | None:
        """-1: to what leaves room for the answer."""
        tokens = _scalar(request, CUT_PARAM)
        if tokens is None:
            return None
        if tokens < -1 or tokens == 0:
            raise Refusal("invalid_parameter", CUT_PARAM, f"{tokens} is less than 1, and not -1")
        if tokens == -1:
            tokens = self._admission.prompt_room(_scalar(request, "max_tokens"), limits)
        keeps_start = _scalar(request, "truncate_keeps_start")
        return PromptCut(tokens=int(tokens), keeps_start=bool(keeps_start))

    def _bad_words(self, request: Any) -> list[str]:
        tensor = pb_utils.get_input_tensor_by_name(request, "bad_words")
        return (
            []
            if tensor is None
            else [_decoded(word, "bad_words") for word in tensor.as_numpy().ravel()]
        )

    def _encode_word(self, word: str) -> list[int]:
        return list(self._tokenizer.encode(word, add_special_tokens=False).ids)

    def _check_guide(self, request: Any) -> None:
        kind = _scalar(request, "guided_decoding_guide_type")
        text = _scalar(request, "guided_decoding_guide")
        if kind is not None:
            self._guide_check.check(
                _decoded(kind, KIND_PARAM),
                _decoded(text or b"", TEXT_PARAM),
                patience_s=GUIDE_PATIENCE_S if _may_be_pending(request) else math.inf,
            )
        elif text is not None:
            raise Refusal("invalid_parameter", KIND_PARAM, "a guide needs its type")

    def _text_ids(
        self,
        request: Any,
        text: bytes,
        cut: PromptCut | None,
        limits: Limits,
        *,
        add_special_tokens: bool,
    ) -> list[int]:
        decoded = _decoded(text, "prompt")
        encode = partial(
            self._encode, cut=cut, limits=limits, add_special_tokens=add_special_tokens
        )
        spans = pb_utils.get_input_tensor_by_name(request, "plain_spans")
        if spans is None:
            return encode(decoded)
        frame = self._plain_spans.frame if add_special_tokens else (0, 0)
        return self._plain_spans.encode(decoded, spans.as_numpy().ravel().tolist(), encode, frame)

    def _encode(
        self, decoded: str, *, cut: PromptCut | None, limits: Limits, add_special_tokens: bool
    ) -> list[int]:
        if cut is not None:
            return cut.of_text(self._tokenizer, decoded, add_special_tokens=add_special_tokens)
        size = START_CHARACTERS_A_TOKEN * self._admission.longest(limits)
        while size < len(decoded):  # ten megabytes would hold up everyone for half a minute
            start = self._tokenizer.encode(decoded[:size], add_special_tokens=False)
            self._admission.check_start(len(start), limits)
            size *= 2
        encoding = self._tokenizer.encode(decoded, add_special_tokens=add_special_tokens)
        return list(encoding.ids)


def _decoded(text: bytes, param: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal("invalid_parameter", param, f"text is not UTF-8: {error}") from error


def _may_be_pending(request: Any) -> bool:
    return bool(json.loads(request.parameters() or "{}").get("guide_may_be_pending"))


def _elements(request: Any, name: str) -> list[Any]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return [] if tensor is None else list(tensor.as_numpy().ravel().tolist())


def _limit(request: Any, name: str) -> int | None:
    limit = _scalar(request, name)
    if limit is not None and limit < 1:
        raise Refusal("invalid_parameter", name, f"{limit} is less than 1")
    return None if limit is None else int(limit)


def _scalar(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().ravel()[0]
