"""One choice's chain: bytes -> text -> stop strings -> parsers -> events. Called by service."""

from __future__ import annotations

from collections.abc import Mapping

from triton_openai.proxy.domain.events import AnyDelta, LoggedToken, OutputEvent
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import FinishReason, TokenDelta
from triton_openai.proxy.domain.request import ChatPrompt, GenerationRequest
from triton_openai.proxy.generation.choice.choice_events import ChoiceEvents
from triton_openai.proxy.generation.choice.end_token import EndToken
from triton_openai.proxy.generation.choice.held_tokens import HeldTokens
from triton_openai.proxy.generation.choice.prompt_echo import PromptEcho
from triton_openai.proxy.generation.choice.stop_matcher import StopMatcher
from triton_openai.proxy.generation.choice.text_decoder import TextDecoder
from triton_openai.proxy.generation.choice.thinking_budget import Thought
from triton_openai.proxy.generation.choice.usage_counter import Tally
from triton_openai.proxy.syntax.output_parser import OutputParser

NO_SPECIALS: Mapping[int, bytes] = {}


class Choice:
    """What is pushed are the deltas of one engine stream, in order.

    Args:
        parser: finds reasoning and calls in the text; None: all of it is text.
        specials: special tokens that have text here, by id; the deltas then have token ids.
    """

    def __init__(
        self,
        request: GenerationRequest,
        card: ModelCard,
        index: int = 0,
        *,
        counts_prompt: bool = True,
        counts_cached: bool = True,
        parser: OutputParser | None = None,
        specials: Mapping[int, bytes] = NO_SPECIALS,
    ) -> None:
        self._tally = Tally(counts_prompt=counts_prompt, counts_cached=counts_cached)
        self._events = ChoiceEvents(request, index, self._tally)
        strips_space = card.facts.strips_leading_space
        self._echo = PromptEcho(request, strips_leading_space=strips_space, specials=specials)
        self._text = TextDecoder(strips_leading_space=strips_space and _begins(request))
        self._stops = StopMatcher(request.stop, includes_stop=request.includes_stop)
        self._parser = parser
        self._specials = specials
        self._thought = Thought(request.thinking_budget, parser, self._tally)
        self._takes_tokens_together = not (
            parser or request.stop or specials or request.echoes_tokens
        )
        self._min_tokens = request.sampling.min_tokens or 0
        self._end_token = EndToken(request, shows_specials=bool(specials))
        self._is_named = request.tool_choice.is_named
        self._logs = request.sampling.top_log_probs is not None
        self._logs_end = request.echoes_prompt  # who scores a prompt leaves the last entry out
        self._logged = HeldTokens()
        self._passed = ""
        self._found: list[AnyDelta] = []
        self.is_finished = False

    def push(self, delta: TokenDelta) -> list[OutputEvent]:
        is_between = delta.finish is None and delta.prompt_tokens is None
        if is_between and self._takes_tokens_together and not delta.log_probs:
            return self._push_together(delta)
        if delta.prompt_tokens is not None:
            self._tally.prompt(delta)
            self._echo.begin(delta.prompt_tokens)
            self._logged.before = self._echo.length
        if self._echo.is_coming:
            delta = self._echo.split(delta)
            self._logged.before = self._echo.length
        logged, taken = self._push_tokens(delta)
        finish = FinishReason.STOP if self._has_ended else delta.finish
        if self.has_thought_enough and finish is FinishReason.STOP:
            finish = None  # the answer is still to come
        if finish is not None:
            finish = self._flush(finish)
            if not self._stops.is_stopped:
                logged += self._logged.rest()
        deltas = self._told(logged, delta.token_ids[:taken], is_last=finish is not None)
        if finish is None:
            return deltas
        self.is_finished = True
        return [*deltas, self._events.finished(finish)]

    @property
    def has_thought_enough(self) -> bool:
        """Whether the thinking budget is spent, and the model still thinks."""
        return not self.is_finished and self._thought.is_enough

    @property
    def tokens(self) -> int:
        """Generated so far."""
        return self._tally.tokens

    @property
    def tally(self) -> Tally:
        """Counts this choice's tokens; it keeps counting while the choice gets deltas."""
        return self._tally

    def end_thought(self, closing: str) -> tuple[str, list[OutputEvent]]:
        """Writes what ends the reasoning in the model's place: all text so far, and its events."""
        text = self._text.flush() + closing
        self._pass_on(self._stops.flush() + text, is_token=False)
        return self._thought.ended(closing), self._told([], (), is_last=False)

    @property
    def _has_ended(self) -> bool:  # before the engine says so
        return self._stops.is_stopped or (self._parser is not None and self._parser.has_all)

    def _push_together(self, delta: TokenDelta) -> list[OutputEvent]:
        """Neither first nor last, where nothing looks at single tokens: nearly all there are."""
        self._tally.tokens += len(delta.token_bytes)
        text = self._text.push(b"".join(delta.token_bytes))
        return self._events.of_text(text, [], delta.token_ids)

    def _push_tokens(self, delta: TokenDelta) -> tuple[list[LoggedToken], int]:
        """Token by token, so that all ends with the token that completed a stop string or call.

        The logged tokens that may be sent, and how many tokens were taken.
        """
        logged, taken = list[LoggedToken](), 0
        end_at = self._end_token.number(delta)
        for taken, data in enumerate(delta.token_bytes, 1):
            self._tally.tokens += 1
            if self._specials and not data:
                data = self._specials.get(delta.token_ids[taken - 1], data)
            self._thought.keep(data)
            is_end = taken == end_at
            data = b"" if is_end else data
            piece = self._text.push(data)
            # stop strings are not looked for in the first `min_tokens`
            checked = self._tally.tokens > self._min_tokens
            passed = self._stops.push(piece) if checked else piece
            self._pass_on(passed)
            if delta.log_probs:
                log_prob = delta.log_probs[taken - 1]
                self._tally.log_prob(log_prob.log_prob)
                if self._logs and (self._logs_end or not is_end):
                    self._logged.push(data, log_prob, len(piece))
                logged += self._logged.released(len(passed), is_last=self._stops.is_stopped)
            if self._has_ended or self.has_thought_enough:
                break
        return logged, taken

    def _pass_on(self, text: str, *, is_token: bool = True) -> None:
        """Text that no stop string can take back."""
        if self._parser is None:
            self._passed += text
            return
        was_thinking = self._parser.is_thinking
        if text:
            self._found += self._parser.push(text)
        self._tally.reasoning += is_token and (was_thinking or self._parser.is_thinking)

    def _flush(self, finish: FinishReason) -> FinishReason:
        """Passes on what was held back. Returns why the choice ended."""
        if not self._has_ended:
            rest = self._stops.push(self._text.flush())
            if self._stops.is_stopped:
                finish = FinishReason.STOP
            rest += self._stops.flush()
            self._pass_on(rest, is_token=False)
        if self._parser is None:
            return finish
        is_end = finish is FinishReason.STOP and not self._stops.is_stopped
        self._found += self._parser.flush(has_ended=is_end)
        return self._parser.reason(finish, is_named=self._is_named)

    def _told(
        self, logged: list[LoggedToken], ids: tuple[int, ...], *, is_last: bool
    ) -> list[OutputEvent]:
        """`ids`: of the tokens taken."""
        if self._parser is not None:
            found, self._found = self._found, []
            return self._events.of_found(found, logged, ids, is_last=is_last)
        prompt, of_prompt = self._echo.take()
        text, self._passed = prompt + self._passed, ""
        return self._events.of_text(text, [*of_prompt, *logged], ids)


def _begins(request: GenerationRequest) -> bool:
    """Else a space at the beginning stands between the caller's words and the model's."""
    continues = isinstance(request.prompt, ChatPrompt) and request.prompt.continues_last
    return not (request.echoes_prompt or continues)
