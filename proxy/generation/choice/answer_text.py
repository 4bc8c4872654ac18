"""One answer's token bytes -> text -> stop strings -> parser. Used by `choice`."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from proxy.domain.events import AnyDelta
from proxy.domain.output import FinishReason
from proxy.domain.request import GenerationRequest
from proxy.generation.choice.choice_cost import ChoiceCost
from proxy.language.syntax.automaton import ROOT, automaton
from proxy.language.syntax.output_parser import OutputParser

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


class StopMatcher:
    """Passes text on up to the first stop string to be complete, which it swallows. Stop strings
    are found wherever the text is cut, and never leaked.

    includes_stop: passes that stop string on, too. stop: the one that was complete.

    Of stop strings that end at the same place the longest counts, so the result does not depend
    on how the text is cut. Text that may be the start of a stop string is held back.
    """

    __slots__ = ("_automaton", "_held", "_includes_stop", "_node", "stop")

    def __init__(self, stops: Sequence[str], *, includes_stop: bool = False) -> None:
        marks = tuple(filter(None, stops))
        self._includes_stop = includes_stop
        self._automaton = automaton(marks) if marks else None
        self._node = ROOT
        self._held = ""
        self.stop: str | None = None

    def push(self, text: str) -> str:
        """Text that is safe to send. Nothing comes after `stop`."""
        if self.stop is not None:
            return ""
        if self._automaton is None:
            return text
        self._node, length = self._automaton.read(self._node, text)
        buffer = self._held + text[:length]
        if length := self._automaton.complete[self._node]:
            self.stop = buffer[-length:]
            self._held = ""
            return buffer if self._includes_stop else buffer[:-length]
        safe = len(buffer) - self._automaton.depth[self._node]
        self._held = buffer[safe:]
        return buffer[:safe]

    def flush(self) -> str:
        """What was held back, when the text ends without a stop string."""
        held, self._held = self._held, ""
        return held


class AnswerText:
    """Collects what may be sent until `take_text` or, with a parser, `take_found`."""

    __slots__ = (
        "_cost",
        "_decoder",
        "_found",
        "_is_named",
        "_min_tokens",
        "_parser",
        "_passed",
        "_stops",
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
        self._parser = parser
        self._cost = cost
        self._min_tokens = request.sampling.min_tokens or 0
        self._is_named = request.tool_choice.is_named
        self._passed: list[str] = []  # a delta may have tens of thousands of tokens
        self._found: list[AnyDelta] = []

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
        # stop strings are not looked for in the first `min_tokens`
        is_checked = self._cost.tokens > self._min_tokens
        passed = self._stops.push(piece) if is_checked else piece
        self._pass_on(passed)
        return len(piece), len(passed)

    def end_thought(self, closing: str) -> None:
        """Takes `closing` as text of the model's, which ends its reasoning."""
        text = self._decoder.flush() + closing
        self._pass_on(self._stops.flush() + text, is_token=False)

    def flush(self, finish: FinishReason) -> FinishReason:
        """Passes on what was held back. Returns why the answer ended.

        Where the token limit cuts a character in two, its bytes are left out, as by vLLM.
        """
        if not self.has_ended:
            is_cut = finish is FinishReason.LENGTH
            rest = self._stops.push("" if is_cut else self._decoder.flush())
            if self._stops.stop is not None:
                finish = FinishReason.STOP
            rest += self._stops.flush()
            self._pass_on(rest, is_token=False)
        if self._parser is None:
            return finish
        is_end = finish is FinishReason.STOP and self._stops.stop is None
        self._found += self._parser.flush(has_ended=is_end)
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
            self._passed.append(text)
            return
        was_thinking = self._parser.is_thinking
        if text:
            self._found += self._parser.push(text)
        self._cost.reasoning += is_token and (was_thinking or self._parser.is_thinking)
