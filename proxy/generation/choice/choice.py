"""One choice: the deltas of its engine streams -> output events. Called by `answer_streams`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from proxy.domain.events import AnyDelta, Finished, LoggedToken, OutputEvent, TextDelta
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, TokenDelta, TokenLogProb
from proxy.domain.request import ChatPrompt, GenerationRequest, TextPrompt
from proxy.generation.choice.answer_text import AnswerText, TextDecoder
from proxy.generation.choice.choice_cost import ChoiceCost
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
        index: int,
        cost: ChoiceCost,
        *,
        parser: OutputParser | None = None,
        specials: Mapping[int, bytes] = NO_SPECIALS,
    ) -> None:
        self._cost = cost
        self._index = index
        strips_space = card.facts.strips_leading_space
        self._echo: PromptEcho | None = None
        if request.echoes_prompt:
            self._echo = PromptEcho(request, strips_leading_space=strips_space, specials=specials)
        self._text = AnswerText(
            request,
            parser,
            self._cost,
            strips_leading_space=strips_space and _begins(request),
        )
        self._parser = parser
        self._budget = None if parser is None else request.thinking_budget
        self._raw = bytearray()  # of the answer, where it may have to continue after its budget
        self._includes_stop = request.includes_stop
        self._hidden_ends = frozenset(
            () if request.includes_stop else request.sampling.stop_token_ids or ()
        )
        self._held = HeldTokens()
        self._unsent: list[LoggedToken] = []  # the parser has found nothing in their text yet
        self._unsent_ids: list[int] = []
        self._specials = specials
        self._returns_ids = request.returns_token_ids
        self._reports_usage = request.reports_usage
        self._takes_tokens_together = not (
            parser or request.stop or specials or request.echoes_prompt
        )
        self._logs = request.sampling.top_log_probs is not None
        self._logs_end = request.echoes_prompt  # harnesses that score a prompt drop the last entry
        self.is_finished = False
        # of this engine stream; else the thinking budget is spent
        self.wants_more = self._budget is None or not self._is_budget_spent

    def push(self, delta: TokenDelta) -> list[OutputEvent]:
        if delta.prompt_tokens is not None:
            self._cost.count_prompt(delta)
        if delta.finish is None and self._takes_tokens_together and not delta.log_probs:
            # nothing looks at single tokens: nearly all deltas
            self._cost.tokens += len(delta.token_bytes)
            text = self._text.push_together(b"".join(delta.token_bytes))
            return self._of_text(text, [], delta.token_ids)
        if self._echo is not None:
            delta = self._echo.split(delta)
            self._held.before = self._echo.length
        logged, taken = self._push_tokens(delta)
        is_spent = self._is_budget_spent
        finish = FinishReason.STOP if self._text.has_ended else delta.finish
        if is_spent and finish is FinishReason.STOP:
            finish = None  # the answer is still to come
        if finish is not None:
            finish = self._text.flush(finish)
            if self._text.stop is None:
                logged += self._held.rest()
        events = self._collected(logged, delta.token_ids[:taken], is_last=finish is not None)
        if finish is None:
            self.wants_more = not is_spent
            return events
        self.is_finished, self.wants_more = True, False
        self._cost.end(delta.times)
        return [*events, self._finished(finish)]

    def end_thought(self, closing: str) -> tuple[str, list[OutputEvent]]:
        """The thinking budget is spent. Ends the reasoning in the model's place: all text so far,
        and its events.
        """
        self._text.end_thought(closing)
        self._raw += closing.encode()
        self.wants_more = True
        return self._raw.decode(errors="replace"), self._collected([], (), is_last=False)

    @property
    def _is_budget_spent(self) -> bool:
        """Whether the thinking budget is spent, and the model still thinks."""
        if self._budget is None or self._parser is None:
            return False
        return self._parser.is_thinking and self._cost.reasoning >= self._budget

    def _push_tokens(self, delta: TokenDelta) -> tuple[list[LoggedToken], int]:
        """Token by token, so that the last is the one that completed a stop string or a call.

        Returns:
            The logged tokens that may be sent, and how many tokens were taken.
        """
        logged, taken = list[LoggedToken](), 0
        end_at = self._end_number(delta)
        for taken, data in enumerate(delta.token_bytes, 1):
            self._cost.tokens += 1
            if self._specials and not data:
                data = self._specials.get(delta.token_ids[taken - 1], data)
            if self._budget is not None:
                self._raw += data
            is_end = taken == end_at
            data = b"" if is_end else data
            characters, passed = self._text.push(data)
            if delta.log_probs:
                log_prob = delta.log_probs[taken - 1]
                self._cost.count_log_prob(log_prob.log_prob)
                if self._logs and (self._logs_end or not is_end):
                    self._held.push(data, log_prob, characters)
                logged += self._held.released(passed, is_last=self._text.stop is not None)
            if self._text.has_ended or self._is_budget_spent:
                break
        self._cost.count_unused(len(delta.token_bytes) - taken)
        return logged, taken

    def _end_number(self, delta: TokenDelta) -> int:
        """The place in the delta, from 1, of the token that ended the answer, if it is not part of
        the text; else 0.
        """
        if delta.finish is not FinishReason.STOP or not delta.token_bytes:
            return 0
        is_hidden = bool(delta.token_ids) and delta.token_ids[-1] in self._hidden_ends
        is_shown = bool(self._specials) and self._includes_stop
        is_special = not delta.token_bytes[-1] and not is_shown
        return len(delta.token_bytes) if is_hidden or is_special else 0

    def _collected(
        self, logged: list[LoggedToken], ids: tuple[int, ...], *, is_last: bool
    ) -> list[OutputEvent]:
        """`ids`: of the tokens taken."""
        if self._parser is not None:
            return self._of_found(self._text.take_found(), logged, ids, is_last=is_last)
        text = self._text.take_text()
        if self._echo is not None:
            prompt, of_prompt = self._echo.take()
            text, logged = prompt + text, [*of_prompt, *logged]
        return self._of_text(text, logged, ids)

    def _of_text(
        self, text: str, logged: list[LoggedToken], ids: tuple[int, ...]
    ) -> list[OutputEvent]:
        """Without a parser: all of it is text."""
        ids = ids if self._returns_ids else ()
        if not (text or logged or ids):
            return []
        usage = self._cost.usage if self._reports_usage else None
        return [
            TextDelta(text, choice=self._index, log_probs=tuple(logged), token_ids=ids, usage=usage)
        ]

    def _of_found(
        self,
        found: list[AnyDelta],
        logged: list[LoggedToken],
        ids: tuple[int, ...],
        *,
        is_last: bool,
    ) -> list[OutputEvent]:
        """What the parser found; the first event has the log-probabilities and ids of all tokens so
        far."""
        self._unsent += logged
        self._unsent_ids += ids if self._returns_ids else ()
        if not found:
            if not is_last or not (self._unsent or self._unsent_ids):
                return []
            found = [TextDelta("")]
        usage = self._cost.usage if self._reports_usage else None
        if self._index or usage is not None:
            found = [replace(delta, choice=self._index, usage=usage) for delta in found]
        first, *others = found
        if self._unsent or self._unsent_ids:
            first = replace(first, log_probs=tuple(self._unsent), token_ids=tuple(self._unsent_ids))
            self._unsent.clear()
            self._unsent_ids.clear()
        return [first, *others]

    def _finished(self, reason: FinishReason) -> Finished:
        return Finished(
            reason=reason,
            usage=self._cost.usage,
            choice=self._index,
            stop=self._text.stop,
            mean_log_prob=self._cost.mean_log_prob if self._logs else None,
            times=self._cost.times,
        )


def _begins(request: GenerationRequest) -> bool:
    """Otherwise a space at the beginning separates the caller's words from the model's."""
    continues = isinstance(request.prompt, ChatPrompt) and request.prompt.continues_last
    return not (request.echoes_prompt or continues)


class PromptEcho:
    """Puts the prompt before its answer, for a caller that asked to echo it. The engine sends the
    prompt's tokens where more than its text is wanted: a long prompt's in several deltas.

    Args:
        specials: special tokens that have text here, by id; the deltas then have token ids.
    """

    __slots__ = ("_comes_in_tokens", "_decoder", "_left", "_logged", "_specials", "_text", "length")

    def __init__(
        self,
        request: GenerationRequest,
        *,
        strips_leading_space: bool,
        specials: Mapping[int, bytes],
    ) -> None:
        self._comes_in_tokens = request.echoes_tokens
        self._decoder = TextDecoder(strips_leading_space=strips_leading_space)
        self._left = 0  # tokens of the prompt that are still to come
        self._specials = specials
        self._logged: list[LoggedToken] = []
        is_known = request.echoes_prompt and not request.echoes_tokens
        prompt = request.prompt
        text = prompt.text if is_known and isinstance(prompt, TextPrompt) else ""
        self._text = [text]  # a delta may have tens of thousands of tokens
        self.length = len(text)  # in characters, of the prompt so far

    def split(self, delta: TokenDelta) -> TokenDelta:
        """The answer's part of a delta; what is before it is kept."""
        if self._comes_in_tokens and delta.prompt_tokens is not None:  # a stream's first
            self._left = delta.prompt_tokens
        if not self._left:
            return delta
        count = min(self._left, len(delta.token_bytes))
        for at, data in enumerate(delta.token_bytes[:count]):
            if self._specials and not data:
                data = self._specials.get(delta.token_ids[at], data)
            if delta.log_probs:
                self._logged.append(LoggedToken(data, delta.log_probs[at], self.length))
            self._add(self._decoder.push(data))
        self._left -= count
        if not self._left:
            self._add(self._decoder.flush())
        return delta.behind(count)

    def _add(self, text: str) -> None:
        self._text.append(text)
        self.length += len(text)

    def take(self) -> tuple[str, list[LoggedToken]]:
        """What has come since the last time."""
        text, logged = "".join(self._text), self._logged
        self._text.clear()
        self._logged = []
        return text, logged


@dataclass(frozen=True, slots=True)
class _Held:
    token_bytes: bytes
    log_prob: TokenLogProb
    start: int  # in characters of the generated text
    end: int


class HeldTokens:
    """Tokens whose text has not been sent yet; they go with it, or are dropped with a stop string.

    `before`: characters in front of the generated text; may be set until the first token. A token
    without characters of its own (the first bytes of one) goes with the character.
    """

    __slots__ = ("_decoded", "_held", "_sent", "before")

    def __init__(self) -> None:
        self.before = 0
        self._decoded = 0
        self._sent = 0
        self._held: deque[_Held] = deque()

    def push(self, token_bytes: bytes, log_prob: TokenLogProb, characters: int) -> None:
        end = self._decoded + characters
        self._held.append(_Held(token_bytes, log_prob, self._decoded, end))
        self._decoded = end

    def released(self, characters: int, *, is_last: bool) -> list[LoggedToken]:
        """After so many more characters were sent; with the last ones, tokens cut short too."""
        self._sent += characters
        out = []
        while self._held and self._is_out(self._held[0], is_last):
            out.append(self._logged(self._held.popleft()))
        return out

    def rest(self) -> list[LoggedToken]:
        """When all text has been sent."""
        held, self._held = self._held, deque()
        return [self._logged(token) for token in held]

    def _is_out(self, token: _Held, is_last: bool) -> bool:
        if not token.token_bytes:
            return token.end <= self._sent
        return token.start < self._sent and (is_last or token.end <= self._sent)

    def _logged(self, token: _Held) -> LoggedToken:
        return LoggedToken(token.token_bytes, token.log_prob, self.before + token.start)
