"""One choice's chain: bytes -> text -> stop strings -> parsers -> events. Called by service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from proxy import prompt_echo
from proxy.domain.events import AnyDelta, Finished, LoggedToken, OutputEvent, TextDelta
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import ChatPrompt, GenerationRequest, TextPrompt
from proxy.held_tokens import HeldTokens
from proxy.output_parser import OutputParser
from proxy.prompt_echo import EchoedPrompt
from proxy.stops import StopMatcher
from proxy.tally import Tally
from proxy.text import TextDecoder

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
        parser: OutputParser | None = None,
        specials: Mapping[int, bytes] = NO_SPECIALS,
    ) -> None:
        self._index = index
        self._tally = Tally(counts_prompt=counts_prompt)
        self._echo = _echo(request)
        self._echoes_tokens = request.echoes_tokens
        self._strips_space = card.facts.strips_leading_space
        strips = self._strips_space and not request.echoes_prompt and not _continues(request)
        self._text = TextDecoder(strips_leading_space=strips)
        self._stops = StopMatcher(request.stop, includes_stop=request.includes_stop)
        self._parser = parser
        self._specials = specials
        self._thinking_budget = request.thinking_budget
        self._takes_tokens_together = not (parser or request.stop or specials)
        self._raw = bytearray()
        self._min_tokens = request.sampling.min_tokens or 0
        self._includes_stop = request.includes_stop
        self._end_ids = frozenset(
            () if request.includes_stop else request.sampling.stop_token_ids or ()
        )
        self._is_named = request.tool_choice.is_named
        self._returns_token_ids = request.returns_token_ids
        self._logs = request.sampling.top_log_probs is not None
        self._logged = HeldTokens(0)
        self._tells_usage = request.tells_usage
        self._passed = ""
        self._found: list[AnyDelta] = []
        self._untold: list[LoggedToken] = []
        self._untold_ids: tuple[int, ...] = ()
        self.is_finished = False

    def push(self, delta: TokenDelta) -> list[OutputEvent]:
        if delta.prompt_tokens is not None:
            self._tally.prompt(delta)
            delta = self._without_echo(delta)
        logged, taken = self._push_tokens(delta)
        finish = FinishReason.STOP if self._has_ended else delta.finish
        if self.has_thought_enough and finish is FinishReason.STOP:
            finish = None  # the answer is still to come
        if finish is not None:
            finish = self._flush(finish)
            if not self._stops.is_stopped:
                logged += self._logged.rest()
        ids = delta.token_ids[:taken] if self._returns_token_ids else ()
        if self._parser is None:
            deltas = self._plain(logged, ids)
        else:
            deltas = self._parsed(logged, ids, is_last=finish is not None)
        if finish is None:
            return [*deltas]
        self.is_finished = True
        return [*deltas, self._finished(finish)]

    @property
    def has_thought_enough(self) -> bool:
        """Whether the thinking budget is spent, and the model still thinks."""
        budget, parser = self._thinking_budget, self._parser
        if budget is None or parser is None or self.is_finished:
            return False
        return parser.is_thinking and self._tally.reasoning >= budget

    @property
    def tokens(self) -> int:
        """Generated so far."""
        return self._tally.tokens

    def end_thought(self, closing: str) -> tuple[str, list[OutputEvent]]:
        """Writes what ends the reasoning in the model's place.

        Returns:
            All text so far, as the model would have written it, and the events of it.
        """
        self._raw += closing.encode()
        text = self._text.flush() + closing
        self._pass_on(self._stops.flush() + text, is_token=False)
        return self._raw.decode(errors="replace"), [*self._parsed([], (), is_last=False)]

    @property
    def _has_ended(self) -> bool:
        """Before the engine says so."""
        return self._stops.is_stopped or (self._parser is not None and self._parser.has_all)

    def _without_echo(self, delta: TokenDelta) -> TokenDelta:
        """The answer's part of a first delta, which may begin with the prompt."""
        if not self._echoes_tokens:
            return delta
        self._echo, rest = prompt_echo.taken(
            delta, strips_leading_space=self._strips_space, specials=self._specials
        )
        self._logged = HeldTokens(len(self._echo.text))
        return rest

    def _push_tokens(self, delta: TokenDelta) -> tuple[list[LoggedToken], int]:
        """Token by token, so that all ends with the token that completed a stop string or call.

        The logged tokens that may be sent, and how many tokens were taken.
        """
        if self._takes_tokens_together and not delta.log_probs:
            return [], self._push_together(delta)
        taken = 0
        logged: list[LoggedToken] = []
        end_at = 0 if delta.finish is None else self._silent_end(delta)
        for data in delta.token_bytes:
            taken += 1
            self._tally.tokens += 1
            if self._specials and not data:
                data = self._specials.get(delta.token_ids[taken - 1], data)
            if self._thinking_budget is not None:
                self._raw += data
            piece = self._text.push(b"" if taken == end_at else data)
            # stop strings are not looked for in the first `min_tokens`
            checked = self._tally.tokens > self._min_tokens
            passed = self._stops.push(piece) if checked else piece
            self._pass_on(passed)
            if delta.log_probs:
                log_prob = delta.log_probs[taken - 1]
                self._tally.log_prob(log_prob.log_prob)
                if self._logs and taken != end_at:
                    self._logged.push(data, log_prob, len(piece))
                logged += self._logged.released(len(passed), is_last=self._stops.is_stopped)
            if self._has_ended or self.has_thought_enough:
                break
        return logged, taken

    def _push_together(self, delta: TokenDelta) -> int:
        """The same where nothing looks at single tokens, which is several times cheaper."""
        taken = shown = len(delta.token_bytes)
        if delta.finish is not None and self._silent_end(delta):
            shown -= 1
        self._tally.tokens += taken
        self._passed += self._text.push(b"".join(delta.token_bytes[:shown]))
        return taken

    def _silent_end(self, delta: TokenDelta) -> int:
        """The number of the token that ended the answer and is no part of the text, 0 for none."""
        if delta.finish is not FinishReason.STOP or not delta.token_bytes:
            return 0
        is_hidden = bool(delta.token_ids) and delta.token_ids[-1] in self._end_ids
        is_special = not delta.token_bytes[-1] and not (self._specials and self._includes_stop)
        return len(delta.token_bytes) if is_hidden or is_special else 0

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
        self._found += self._parser.flush()
        answers_calls = self._parser.has_calls and not self._is_named
        if finish is FinishReason.STOP and answers_calls:
            return FinishReason.TOOL_CALLS
        return finish

    def _plain(self, logged: list[LoggedToken], ids: tuple[int, ...]) -> list[AnyDelta]:
        """Where all of it is text."""
        text, self._passed = self._echo.text + self._passed, ""
        logged = [*self._echo.logged, *logged]
        self._echo = EchoedPrompt()
        if not (text or logged or ids):
            return []
        return [
            TextDelta(
                text,
                choice=self._index,
                log_probs=tuple(logged),
                token_ids=ids,
                usage=self._tally.usage if self._tells_usage else None,
            )
        ]

    def _parsed(
        self, logged: list[LoggedToken], ids: tuple[int, ...], *, is_last: bool
    ) -> list[AnyDelta]:
        """What the parser found, the first with what there is to tell of the tokens so far."""
        self._untold += logged
        self._untold_ids += ids
        found, self._found = self._found, []
        if not found:
            if not is_last or not (self._untold or self._untold_ids):
                return []
            found = [TextDelta("")]
        usage = self._tally.usage if self._tells_usage else None
        found = [replace(delta, choice=self._index, usage=usage) for delta in found]
        tokens, self._untold = tuple(self._untold), []
        ids, self._untold_ids = self._untold_ids, ()
        found[0] = replace(found[0], log_probs=tokens, token_ids=ids)
        return found

    def _finished(self, reason: FinishReason) -> Finished:
        mean = self._tally.mean_log_prob if self._logs else None
        usage = self._tally.usage
        return Finished(reason=reason, usage=usage, choice=self._index, mean_log_prob=mean)


def _echo(request: GenerationRequest) -> EchoedPrompt:
    """Without the engine's help, where a text is all that is wanted."""
    is_known = request.echoes_prompt and not request.echoes_tokens
    if is_known and isinstance(request.prompt, TextPrompt):
        return EchoedPrompt(request.prompt.text)
    return EchoedPrompt()


def _continues(request: GenerationRequest) -> bool:
    """Then a space at the beginning stands between the caller's words and the model's."""
    return isinstance(request.prompt, ChatPrompt) and request.prompt.continues_last
