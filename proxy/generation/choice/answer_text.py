"""One answer's token bytes -> text -> stop strings -> parser. Used by `choice`."""

from __future__ import annotations

from proxy.domain.events import AnyDelta
from proxy.domain.output import FinishReason
from proxy.domain.request import GenerationRequest
from proxy.generation.choice.stop_matcher import StopMatcher
from proxy.generation.choice.text_decoder import TextDecoder
from proxy.generation.choice.usage_counter import UsageCounter
from proxy.language.syntax.output_parser import OutputParser


class AnswerText:
    """Collects what may be sent until `take_text` or, with a parser, `take_found`."""

    __slots__ = (
        *("_counter", "_decoder", "_found", "_is_named", "_min_tokens", "_parser", "_passed"),
        "_stops",
    )

    def __init__(
        self,
        request: GenerationRequest,
        parser: OutputParser | None,
        counter: UsageCounter,
        *,
        strips_leading_space: bool,
    ) -> None:
        self._decoder = TextDecoder(strips_leading_space=strips_leading_space)
        self._stops = StopMatcher(request.stop, includes_stop=request.includes_stop)
        self._parser = parser
        self._counter = counter
        self._min_tokens = request.sampling.min_tokens or 0
        self._is_named = request.tool_choice.is_named
        self._passed = ""
        self._found: list[AnyDelta] = []

    @property
    def is_stopped(self) -> bool:
        """By a stop string."""
        return self._stops.is_stopped

    @property
    def has_ended(self) -> bool:
        """Before the engine reports it: by a stop string, or with the last call that is allowed."""
        return self._stops.is_stopped or (self._parser is not None and self._parser.has_all)

    def push_together(self, data: bytes) -> str:
        """The text of several tokens, where there are neither stop strings nor a parser."""
        return self._decoder.push(data)

    def push(self, data: bytes) -> tuple[int, int]:
        """One token, which is counted already.

        Returns:
            The characters of its text, and how many characters no stop string can take back now.
        """
        piece = self._decoder.push(data)
        # stop strings are not looked for in the first `min_tokens`
        is_checked = self._counter.tokens > self._min_tokens
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
            if self._stops.is_stopped:
                finish = FinishReason.STOP
            rest += self._stops.flush()
            self._pass_on(rest, is_token=False)
        if self._parser is None:
            return finish
        is_end = finish is FinishReason.STOP and not self._stops.is_stopped
        self._found += self._parser.flush(has_ended=is_end)
        return self._parser.reason(finish, is_named=self._is_named)

    def take_text(self) -> str:
        text, self._passed = self._passed, ""
        return text

    def take_found(self) -> list[AnyDelta]:
        found, self._found = self._found, []
        return found

    def _pass_on(self, text: str, *, is_token: bool = True) -> None:
        if self._parser is None:
            self._passed += text
            return
        was_thinking = self._parser.is_thinking
        if text:
            self._found += self._parser.push(text)
        self._counter.reasoning += is_token and (was_thinking or self._parser.is_thinking)
