"""A request's text and ids -> the token ids of its prompt; its bad words -> theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from admission import CUT_MARGIN_TOKENS, Admission, OperatorLimits
from plain_spans import PlainSpans, checked
from prompt_cache import Ids, PromptCache, Spans, as_ids
from refusal import INVALID_PARAMETER, Refusal
from request import TRUNCATION_PARAM, Request

Encode = Callable[[str], list[int]]
# The longer the words, the longer it takes to tokenize them, and to compare them at every step.
CHARACTERS_AT_MOST, TOKENS_AT_MOST = 65_536, 16_384


def bad_words_list(words: Iterable[str], encode: Encode) -> npt.NDArray[np.int32]:
    """TensorRT-LLM's word list [1, 2, n]: row 0 is all ids joined, row 1 says where each word ends,
    padded with -1.

    Each word counts both as it is and with a space before it, if that makes other tokens.

    Raises:
        Refusal: all words together are too long.
    """
    words = list(words)
    _check("characters", sum(map(len, words)), CHARACTERS_AT_MOST)
    variants = {
        tuple(encode(variant)): None for word in words for variant in (word, f" {word.lstrip()}")
    }
    ids = [token for variant in variants for token in variant]
    _check("tokens, including those with a space before them", len(ids), TOKENS_AT_MOST)
    ends = np.cumsum([len(variant) for variant in variants if variant], dtype=np.int32)
    rows = np.full((1, 2, len(ids)), -1, dtype=np.int32)
    rows[0, 0] = ids
    rows[0, 1, : len(ends)] = ends
    return rows


def _check(unit: str, count: int, most: int) -> None:
    if count > most:
        raise Refusal(
            INVALID_PARAMETER,
            "bad_words",
            f"the words have {count} {unit}: at most {most} are allowed for all words together",
        )


CHARACTERS_A_TOKEN = 4  # a guess of how much text to tokenize for a token


@dataclass(frozen=True, kw_only=True)
class PromptTruncation:
    """`truncate_prompt_tokens`: keeps at most `tokens`, those at the end or, with `keeps_start`,
    those at the beginning.
    """

    tokens: int
    keeps_start: bool

    def of_ids(self, ids: list[int]) -> list[int]:
        return ids[: self.tokens] if self.keeps_start else ids[-self.tokens :]

    def of_text(self, tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
        """Tokenizes only as much of a long text as it needs, and keeps the special tokens.

        Cutting a text changes only the few tokens around the cut; the margin is for these.
        """
        special = tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0
        room = max(self.tokens - special, 0)
        size = CHARACTERS_A_TOKEN * (room + CUT_MARGIN_TOKENS)
        while True:
            kept = text[:size] if self.keeps_start else text[-size:]
            encoding = tokenizer.encode(kept, add_special_tokens=False)
            if size >= len(text) or len(encoding) >= room + CUT_MARGIN_TOKENS:
                break
            size *= 2
        encoding.truncate(room, direction="right" if self.keeps_start else "left")
        return list(tokenizer.post_process(encoding, None, add_special_tokens).ids)


class PromptEncoder:
    """Encodes with the model's own tokenizer."""

    def __init__(self, tokenizer: Tokenizer, admission: Admission) -> None:
        self._tokenizer = tokenizer
        self._admission = admission
        self._cache = PromptCache(tokenizer)
        self._plain = PlainSpans(tokenizer)

    def prompt_ids(self, request: Request, given: list[int] | None, limits: OperatorLimits) -> Ids:
        """The tokens of text_input, then the `given` ones. Raises Refusal."""
        truncation = self._truncation(request, limits)
        text = request.text
        if truncation is not None and text is not None and given is not None:
            raise Refusal(
                INVALID_PARAMETER, TRUNCATION_PARAM, "cannot truncate text and ids together"
            )
        ids = as_ids([]) if text is None else self._text_ids(request, text, truncation, limits)
        if given is not None:
            self._admission.check_ids(given)
            given = given if truncation is None else truncation.of_ids(given)
            ids = np.concatenate((ids, as_ids(given)))
        return ids

    def word_ids(self, word: str) -> list[int]:
        """The tokens of a word; no special tokens are added, but those that it spells are found."""
        return list(self._tokenizer.encode(word, add_special_tokens=False).ids)

    def _truncation(self, request: Request, limits: OperatorLimits) -> PromptTruncation | None:
        tokens = request.truncate_prompt_tokens
        if tokens is None:
            return None
        if tokens == -1:
            tokens = self._admission.prompt_room(request.max_tokens, limits)
        return PromptTruncation(tokens=tokens, keeps_start=request.truncate_keeps_start)

    def _text_ids(
        self,
        request: Request,
        text: str,
        truncation: PromptTruncation | None,
        limits: OperatorLimits,
    ) -> Ids:
        adds_special, spans = request.adds_special_tokens, request.plain_spans
        encode = partial(
            self._encode, truncation=truncation, limits=limits, add_special_tokens=adds_special
        )
        if spans is not None:
            checked(spans, len(text))
        if truncation is None and not adds_special:

            def piece(text: str, spans: Spans) -> list[int]:
                return encode(text) if spans is None else self._plain.encode(text, spans, encode)

            def check(tokens: int) -> None:
                if len(text) > CHARACTERS_A_TOKEN * self._admission.longest_prompt(limits):
                    self._admission.check_start(tokens, limits)

            return self._cache.encode(text, spans, request.cache_salt, piece, check)
        if spans is None:
            return as_ids(encode(text))
        frame = self._plain.frame if adds_special else (0, 0)
        return as_ids(self._plain.encode(text, spans, encode, frame))

    def _encode(
        self,
        text: str,
        *,
        truncation: PromptTruncation | None,
        limits: OperatorLimits,
        add_special_tokens: bool,
    ) -> list[int]:
        if truncation is not None:
            return truncation.of_text(self._tokenizer, text, add_special_tokens=add_special_tokens)
        size = CHARACTERS_A_TOKEN * self._admission.longest_prompt(limits)
        while size < len(text):  # tokenizing ten megabytes would block others for half a minute
            start = self._tokenizer.encode(text[:size], add_special_tokens=False)
            self._admission.check_start(len(start), limits)
            size *= 2
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
