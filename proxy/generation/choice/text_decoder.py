"""Token bytes -> text, incrementally. The sum equals the tokenizer's own decode of all ids."""

from __future__ import annotations

import codecs

_NEW_UTF8_DECODER = codecs.getincrementaldecoder("utf-8")


class TextDecoder:
    """Holds back the bytes of an unfinished character; invalid bytes become U+FFFD.

    Args:
        strips_leading_space: drop one space at the very start, as SentencePiece decoders do.
    """

    __slots__ = ("_decoder", "_drops_space")

    def __init__(self, *, strips_leading_space: bool = False) -> None:
        self._decoder = _NEW_UTF8_DECODER(errors="replace")
        self._drops_space = strips_leading_space

    def push(self, data: bytes) -> str:
        return self._start(self._decoder.decode(data))

    def flush(self) -> str:
        """What is left when the stream ends: U+FFFD for an unfinished character."""
        return self._start(self._decoder.decode(b"", final=True))

    def _start(self, text: str) -> str:
        if self._drops_space and text:
            self._drops_space = False
            return text.removeprefix(" ")
        return text
