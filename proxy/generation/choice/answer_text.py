"""One answer's token bytes -> text -> stop strings, or a parser that has them. Used by `choice`."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from proxy.domain.events import AnyDelta, ReasoningDelta
from proxy.domain.output import FinishReason
from proxy.domain.request import GenerationRequest
from proxy.generation.choice.choice_cost import ChoiceCost
from proxy.language.syntax.output_parser import OutputParser
from proxy.language.syntax.stop_matcher import StopMatcher

_NEW_UTF8_DECODER = codecs.getincrementaldecoder("utf-8")


class TextDecoder:
    """Token bytes -> text, incrementally. The sum equals the tokenizer's own decode of all ids.

    Holds back the bytes of an unfinished character; invalid bytes become U+FFFD.

    Args:
        strips_leading_space: drop one space at the very start, as SentencePiece decoders do.
    """

    __slots__ = ("_decoder", "_drops_space", "together")

    def __init__(self, *, strips_leading_space: bool = False) -> None:
        self._decoder = _NEW_UTF8_DECODER(errors="replace")
        self._drops_space = strips_leading_space
        # as `push`, without a layer between: called for nearly all deltas
        self.together: Callable[[bytes], str] = self._decoder.decode
        if strips_leading_space:
            self.together = self.push

    def push(self, data: bytes) -> str:
        text = self._decoder.decode(data)
        return self._start(text) if self._drops_space else text

    def flush(self) -> str:
        """What is left when the stream ends: U+FFFD for an unfinished character."""
        return self._start(self._decoder.decode(b"", final=True))

    def _start(self, text: str) -> str:
        if self._drops_space and text:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


class AnswerText:
    """Collects what may be sent until `take_text` or, with a parser, `take_found`."""

    __slots__ = (
        "_cost",
        "_decoder",
        "_found",
        "_has_stops",
        "_is_named",
        "_min_tokens",
        "_parser",
        "_passed",
        "_stops",
        "_undecided",
        "_unsent",
        "push_together",
    )

    def __init__(
        self,
        request: GenerationRequest,
        parser: OutputParser | None,
        cost: ChoiceCost,
        *,
        strips_leading_space: bool,
    ) -> None:
        self._decoder = TextDecoder(strips_leading_space=strips_leading_space)
        # the text of several tokens, where there are neither stop strings nor a parser
        self.push_together = self._decoder.together
        self._stops = StopMatcher(request.stop, includes_stop=request.includes_stop)
        self._has_stops = bool(request.stop)
        self._unsent = 0  # characters that a stop string may still take back, or has taken
        if parser is not None:
            parser.stops = self._stops
        self._parser = parser
        self._cost = cost
        self._min_tokens = request.sampling.min_tokens or 0
        self._is_named = request.tool_choice.is_named
        self._passed: list[str] = []  # a delta may have tens of thousands of tokens
        self._found: list[AnyDelta] = []
        self._undecided = 0  # tokens that belong to a thought, if one is found

    @property
    def stop(self) -> str | None:
        """The stop string that ended it."""
        return self._stops.stop

    @property
    def has_ended(self) -> bool:
        """Before the engine reports it: by a stop string, or with the last call that is allowed."""
        return self._stops.stop is not None or (self._parser is not None and self._parser.has_all)

    def push(self, data: bytes) -> tuple[int, int]:
        """One token, which is counted already.

        Returns:
            The characters of its text, and how many characters no stop string can take back now.
        """
        piece = self._decoder.push(data)
        if not self._has_stops:
            self._pass_on(piece)
            return len(piece), len(piece)
        # stop strings are not looked for in the first `min_tokens`
        self._stops.is_on = self._cost.tokens > self._min_tokens
        self._pass_on(piece)
        before, self._unsent = self._unsent, self._stops.unsent
        if self._parser is not None:
            self._unsent += self._parser.pending
        return len(piece), len(piece) + before - self._unsent

    def end_thought(self, closing: str) -> None:
        """Takes `closing` as text of the model's, which ends its reasoning."""
        if self._parser is not None:
            self._parser.end_thought()
        self._pass_on(self._decoder.flush() + closing, is_token=False)

    def flush(self, finish: FinishReason) -> FinishReason:
        """Passes on what was held back. Returns why the answer ended.

        Where the token limit cuts a character in two, its bytes are left out, as by vLLM.
        """
        if not self.has_ended and finish is not FinishReason.LENGTH:
            self._pass_on(self._decoder.flush(), is_token=False)
        is_end = finish is FinishReason.STOP and not self.has_ended
        if self._parser is not None:
            self._found += self._parser.flush(has_ended=is_end)
        else:
            self._passed.append(self._stops.flush())
        if self._stops.stop is not None:
            finish = FinishReason.STOP
        if self._parser is None:
            return finish
        return self._parser.reason(finish, is_named=self._is_named)

    def take_text(self) -> str:
        text = "".join(self._passed)
        self._passed.clear()
        return text

    def take_found(self) -> list[AnyDelta]:
        found, self._found = self._found, []
        return found

    def _pass_on(self, text: str, *, is_token: bool = True) -> None:
        if self._parser is None:
            self._passed.append(self._stops.push(text))
            return
        was_thinking, was_undecided = self._parser.is_thinking, self._parser.is_undecided
        found = self._parser.push(text) if text else []
        self._found += found
        thinks = was_thinking or self._parser.is_thinking
        if was_undecided:
            self._undecided += is_token
            if thinks or (found and isinstance(found[0], ReasoningDelta)):
                self._cost.reasoning += self._undecided
        else:
            self._cost.reasoning += is_token and thinks
