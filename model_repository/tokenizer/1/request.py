"""One Triton request of the tokenizer, as Python values. Refuses values that are wrong."""

from __future__ import annotations

import json
from typing import Any

import triton_python_backend_utils as pb_utils

from admission import RESUME_PARAM, OperatorLimits
from guide_check.check import KIND_PARAM, TEXT_PARAM
from refusal import INVALID_PARAMETER, Refusal

TRUNCATION_PARAM = "truncate_prompt_tokens"


class Request:
    """Reads a tensor when its property is read. An absent one is None, or has no elements."""

    def __init__(self, request: Any) -> None:
        self._request = request

    @property
    def id(self) -> str:
        return str(self._request.request_id())

    @property
    def text(self) -> str | None:
        text = self._scalar("text_input")
        return None if text is None else _decoded(text, "prompt")

    def split_ids(self) -> tuple[list[int] | None, list[int]]:
        """input_ids: the prompt's, None if it has none, and the generated ones after them."""
        ids, resumed = self._optional_elements("input_ids"), self._integer("resume_from") or 0
        given = 0 if ids is None else len(ids)
        if not 0 <= resumed <= given:
            raise Refusal(
                INVALID_PARAMETER,
                RESUME_PARAM,
                f"resume_from is {resumed}, must be from 0 to {given}, the number of input_ids",
            )
        if ids is None or not resumed:
            return ids, []
        return ids[:-resumed] or None, ids[-resumed:]

    @property
    def plain_spans(self) -> list[int] | None:
        return self._optional_elements("plain_spans")

    @property
    def adds_special_tokens(self) -> bool:
        adds = self._scalar("add_special_tokens")
        return adds is None or bool(adds)

    @property
    def cache_salt(self) -> str:
        return _decoded(self._scalar("cache_salt") or b"", "cache_salt")

    @property
    def max_tokens(self) -> int | None:
        return self._integer("max_tokens")

    @property
    def echoes_prompt(self) -> bool:
        return bool(self._scalar("echo_prompt"))

    @property
    def truncate_prompt_tokens(self) -> int | None:
        """-1: as many as leave room for the answer."""
        tokens = self._integer(TRUNCATION_PARAM)
        if tokens is not None and (tokens < -1 or tokens == 0):
            raise Refusal(
                INVALID_PARAMETER, TRUNCATION_PARAM, f"{tokens} is less than 1, and not -1"
            )
        return tokens

    @property
    def truncate_keeps_start(self) -> bool:
        return bool(self._scalar("truncate_keeps_start"))

    @property
    def limits(self) -> OperatorLimits:
        return OperatorLimits(
            default_max_tokens=self._limit("default_max_tokens"),
            prompt_tokens=self._limit("max_prompt_tokens"),
        )

    @property
    def bad_words(self) -> list[str]:
        return [_decoded(word, "bad_words") for word in self.elements("bad_words")]

    @property
    def guide(self) -> tuple[str, str] | None:
        """Its kind and its text."""
        kind, text = self._scalar(KIND_PARAM), self._scalar(TEXT_PARAM)
        if kind is not None:
            return _decoded(kind, KIND_PARAM), _decoded(text or b"", TEXT_PARAM)
        if text is not None:
            raise Refusal(INVALID_PARAMETER, KIND_PARAM, "a guide needs its type")
        return None

    @property
    def accepts_pending_guide(self) -> bool:
        """Whether the client sends the request again if its guide is still being checked."""
        return bool(json.loads(self._request.parameters() or "{}").get("guide_may_be_pending"))

    def elements(self, name: str) -> list[Any]:
        """All elements of a tensor; none if it is absent."""
        return self._optional_elements(name) or []

    def _optional_elements(self, name: str) -> list[Any] | None:
        tensor = pb_utils.get_input_tensor_by_name(self._request, name)
        if tensor is None:
            return None
        elements: list[Any] = tensor.as_numpy().ravel().tolist()
        return elements

    def _scalar(self, name: str) -> Any:
        elements = self._optional_elements(name)
        return None if elements is None else elements[0]

    def _integer(self, name: str) -> int | None:
        value = self._scalar(name)
        return None if value is None else int(value)

    def _limit(self, name: str) -> int | None:
        limit = self._integer(name)
        if limit is not None and limit < 1:
            raise Refusal(INVALID_PARAMETER, name, f"{limit} is less than 1")
        return limit


def _decoded(text: bytes, param: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(INVALID_PARAMETER, param, f"text is not UTF-8: {error}") from error
