"""One choice: the deltas of its engine streams -> output events. Called by `answer_streams`."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.domain.events import LoggedToken, OutputEvent
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import ChatPrompt, GenerationRequest
from proxy.generation.choice.answer_text import AnswerText
from proxy.generation.choice.choice_clock import ChoiceClock
from proxy.generation.choice.choice_events import ChoiceEvents
from proxy.generation.choice.end_token import EndToken
from proxy.generation.choice.held_tokens import HeldTokens
from proxy.generation.choice.prompt_echo import PromptEcho
from proxy.generation.choice.thinking_budget import ThinkingBudget
from proxy.generation.choice.usage_counter import UsageCounter
from proxy.language.syntax.output_parser import OutputParser

NO_SPECIALS: Mapping[int, bytes] = {}


class Choice:
    """Gets the deltas of an engine stream in their order.

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
        self.clock = ChoiceClock(card, reports_prefill=counts_cached)
        self._counter = UsageCounter(counts_prompt=counts_prompt, counts_cached=counts_cached)
        self._events = ChoiceEvents(request, index, self._counter)
        strips_space = card.facts.strips_leading_space
        self._echo = PromptEcho(request, strips_leading_space=strips_space, specials=specials)
        self._text = AnswerText(
            request,
            parser,
            self._counter,
            strips_leading_space=strips_space and _begins(request),
        )
        self._budget = ThinkingBudget(request.thinking_budget, parser, self._counter)
        self._has_budget = parser is not None and request.thinking_budget is not None
        self._end_token = EndToken(request, shows_specials=bool(specials))
        self._logged = HeldTokens()
        self._specials = specials
        self._has_parser = parser is not None
        self._takes_tokens_together = not (
            parser or request.stop or specials or request.echoes_tokens
        )
        self._logs = request.sampling.top_log_probs is not None
        self._logs_end = request.echoes_prompt  # harnesses that score a prompt drop the last entry
        self.is_finished = False

    def push(self, delta: TokenDelta) -> list[OutputEvent]:
        is_between = delta.finish is None and delta.prompt_tokens is None
        if is_between and self._takes_tokens_together and not delta.log_probs:
            return self._push_together(delta)
        if delta.prompt_tokens is not None:
            self._begin(delta, delta.prompt_tokens)
        if self._echo.is_coming:
            delta = self._echo.split(delta)
            self._logged.before = self._echo.length
        logged, taken = self._push_tokens(delta)
        finish = FinishReason.STOP if self._text.has_ended else delta.finish
        if self.has_thought_enough and finish is FinishReason.STOP:
            finish = None  # the answer is still to come
        if finish is not None:
            finish = self._text.flush(finish)
            if not self._text.is_stopped:
                logged += self._logged.rest()
        events = self._collected(logged, delta.token_ids[:taken], is_last=finish is not None)
        if finish is None:
            return events
        self.is_finished = True
        self.clock.end(delta.times)
        return [*events, self._events.finished(finish, self.clock.times)]

    @property
    def has_thought_enough(self) -> bool:
        """Whether the thinking budget is spent, and the model still thinks."""
        return self._has_budget and not self.is_finished and self._budget.is_spent

    @property
    def tokens(self) -> int:
        """Generated so far."""
        return self._counter.tokens

    @property
    def usage_counter(self) -> UsageCounter:
        """Counts this choice's tokens for as long as the choice gets deltas."""
        return self._counter

    def end_thought(self, closing: str) -> tuple[str, list[OutputEvent]]:
        """Ends the reasoning in the model's place: all text so far, and its events."""
        self.clock.end(None)
        self._text.end_thought(closing)
        return self._budget.ended(closing), self._collected([], (), is_last=False)

    def _begin(self, delta: TokenDelta, prompt_tokens: int) -> None:
        """With a stream's first delta."""
        self._counter.count_prompt(delta)
        self._echo.begin(prompt_tokens)
        self._logged.before = self._echo.length

    def _push_together(self, delta: TokenDelta) -> list[OutputEvent]:
        """Neither first nor last, where nothing looks at single tokens: nearly all deltas."""
        self._counter.tokens += len(delta.token_bytes)
        text = self._text.push_together(b"".join(delta.token_bytes))
        return self._events.of_text(text, [], delta.token_ids)

    def _push_tokens(self, delta: TokenDelta) -> tuple[list[LoggedToken], int]:
        """Token by token, so that the last is the one that completed a stop string or a call.

        Returns:
            The logged tokens that may be sent, and how many tokens were taken.
        """
        logged, taken = list[LoggedToken](), 0
        end_at = self._end_token.number(delta)
        for taken, data in enumerate(delta.token_bytes, 1):
            self._counter.tokens += 1
            if self._specials and not data:
                data = self._specials.get(delta.token_ids[taken - 1], data)
            if self._has_budget:
                self._budget.keep(data)
            is_end = taken == end_at
            data = b"" if is_end else data
            characters, passed = self._text.push(data)
            if delta.log_probs:
                log_prob = delta.log_probs[taken - 1]
                self._counter.count_log_prob(log_prob.log_prob)
                if self._logs and (self._logs_end or not is_end):
                    self._logged.push(data, log_prob, characters)
                logged += self._logged.released(passed, is_last=self._text.is_stopped)
            if self._text.has_ended or (self._has_budget and self._budget.is_spent):
                break
        return logged, taken

    def _collected(
        self, logged: list[LoggedToken], ids: tuple[int, ...], *, is_last: bool
    ) -> list[OutputEvent]:
        """`ids`: of the tokens taken."""
        if self._has_parser:
            found = self._text.take_found()
            return self._events.of_found(found, logged, ids, is_last=is_last)
        prompt, of_prompt = self._echo.take()
        return self._events.of_text(prompt + self._text.take_text(), [*of_prompt, *logged], ids)


def _begins(request: GenerationRequest) -> bool:
    """Otherwise a space at the beginning separates the caller's words from the model's."""
    continues = isinstance(request.prompt, ChatPrompt) and request.prompt.continues_last
    return not (request.echoes_prompt or continues)
