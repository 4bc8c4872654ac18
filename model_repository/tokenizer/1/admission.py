"""Exact admission: whether a prompt fits the context, and how many new tokens may follow it."""

from __future__ import annotations

from dataclasses import dataclass

from refusal import CONTEXT_LENGTH_EXCEEDED, INVALID_PARAMETER, Refusal

RESUME_PARAM = "resume_from"
CUT_MARGIN_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class OperatorLimits:
    """An operator's limits for one request, in tokens; None for no limit.

    default_max_tokens: new tokens if the request does not set max_tokens; if it does, a max_tokens
    that does not fit is lowered, not refused. prompt_tokens: the longest prompt.
    """

    default_max_tokens: int | None = None
    prompt_tokens: int | None = None


NO_LIMITS = OperatorLimits()


@dataclass(frozen=True, kw_only=True)
class Admission:
    """The model's own limits, in tokens."""

    context_length: int
    vocab_size: int
    default_max_tokens: int | None = None

    def check_ids(self, ids: list[int], param: str = "prompt") -> None:
        """Refuses ids outside the vocabulary, and names the first one."""
        for position, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:
                raise Refusal(
                    INVALID_PARAMETER,
                    param,
                    f"token id {token} at position {position} is outside the vocabulary "
                    f"of {self.vocab_size} tokens",
                )

    def check_generated(self, ids: list[int], prompt_tokens: int) -> None:
        """Refuses generated ids that this model cannot have generated after the prompt."""
        if prompt_tokens + len(ids) > self.context_length:
            raise Refusal(
                INVALID_PARAMETER,
                RESUME_PARAM,
                f"resume_from is {len(ids)}, but after a prompt of {prompt_tokens} tokens this "
                f"model generates at most {self.context_length - prompt_tokens}: its maximum "
                f"context length is {self.context_length} tokens",
            )
        self.check_ids(ids, RESUME_PARAM)

    def longest_prompt(self, limits: OperatorLimits) -> int:
        return _smaller(self.context_length, limits.prompt_tokens)

    def check_start(self, tokens: int, limits: OperatorLimits = NO_LIMITS) -> None:
        """Refuses a prompt whose first part alone, of `tokens` tokens, is too long.

        Cutting a text changes only the few tokens around the cut; the margin is for these.
        """
        longest = self.longest_prompt(limits)
        if tokens > longest + CUT_MARGIN_TOKENS:
            if longest < self.context_length:
                raise _over_limit(f"more than {longest}", longest)
            raise self._too_long(f"more than {longest}")

    def check_prompt(self, tokens: int, limits: OperatorLimits) -> None:
        """Refuses a prompt over the operator's limit."""
        most = limits.prompt_tokens
        if most is not None and tokens > most:
            raise _over_limit(str(tokens), most)

    def prompt_room(self, max_tokens: int | None, limits: OperatorLimits = NO_LIMITS) -> int:
        """The longest prompt that leaves room for max_tokens, or for the default, or one token."""
        default = min(self._defaults(limits), default=1)
        room = self.context_length - (max_tokens or default)
        return max(1, _smaller(room, limits.prompt_tokens))

    def new_tokens(
        self,
        prompt_tokens: int,
        max_tokens: int | None,
        limits: OperatorLimits = NO_LIMITS,
        *,
        may_be_none: bool = False,
    ) -> int:
        """How many new tokens the request gets. Refuses prompts and max_tokens that do not fit.

        That is max_tokens, or else the default, or what is left of the context if that is less.
        may_be_none: max_tokens may be 0.
        """
        if not prompt_tokens:
            raise Refusal(
                INVALID_PARAMETER, "prompt", "The prompt has no tokens. Give a text or token ids."
            )
        room = self.context_length - prompt_tokens
        is_none = may_be_none and max_tokens == 0
        if room < (0 if is_none else 1):
            raise self._too_long(str(prompt_tokens))
        if is_none:
            return 0
        if max_tokens is None:
            return min([room, *self._defaults(limits)])
        if max_tokens < 1:
            raise Refusal(INVALID_PARAMETER, "max_tokens", f"{max_tokens} is less than 1")
        if max_tokens > room and limits.default_max_tokens is None:
            raise self._no_room(prompt_tokens, max_tokens)
        return min(max_tokens, room)

    def _defaults(self, limits: OperatorLimits) -> list[int]:
        given = (self.default_max_tokens, limits.default_max_tokens)
        return [tokens for tokens in given if tokens is not None]

    def _too_long(self, prompt_tokens: str) -> Refusal:
        return Refusal(
            CONTEXT_LENGTH_EXCEEDED,
            "prompt",
            f"This model's maximum context length is {self.context_length} tokens, and the "
            f"prompt has {prompt_tokens}, which leaves no room for an answer. Shorten the prompt.",
        )

    def _no_room(self, prompt_tokens: int, max_tokens: int) -> Refusal:
        return Refusal(
            CONTEXT_LENGTH_EXCEEDED,
            "max_tokens",
            f"This model's maximum context length is {self.context_length} tokens. You asked "
            f"for {prompt_tokens + max_tokens} ({prompt_tokens} in the prompt, {max_tokens} "
            f"for the answer). Shorten the prompt, or ask for at most "
            f"{self.context_length - prompt_tokens} new tokens.",
        )


def _smaller(tokens: int, limit: int | None) -> int:
    return tokens if limit is None else min(tokens, limit)


def _over_limit(prompt_tokens: str, most: int) -> Refusal:
    return Refusal(
        CONTEXT_LENGTH_EXCEEDED,
        "prompt",
        f"This server accepts prompts of at most {most} tokens for this model, and the prompt has "
        f"{prompt_tokens}. Shorten the prompt.",
    )
