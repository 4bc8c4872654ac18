"""Exact admission: does a prompt of this many tokens fit, and how many new ones may follow."""

from __future__ import annotations

import json
from dataclasses import dataclass

CUT_MARGIN_TOKENS = 64


class Refusal(Exception):
    """A request that cannot be served; `param` is the field as the ensemble names it."""

    def __init__(self, code: str, param: str, message: str) -> None:
        super().__init__(message)
        self.code, self.param, self.message = code, param, message

    def as_json(self) -> str:
        return json.dumps({"code": self.code, "param": self.param, "message": self.message})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """An operator's, for one request; None for none. In tokens.

    default_max_tokens: new ones where the request does not say how many.
    """

    default_max_tokens: int | None = None
    prompt_tokens: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Sizes are in tokens."""

    context_length: int
    vocab_size: int
    default_max_tokens: int | None = None

    def checked_ids(self, ids: list[int]) -> list[int]:
        """The ids, or a Refusal that names the first one outside the vocabulary."""
        for position, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:
                raise Refusal(
                    "invalid_parameter",
                    "prompt",
                    f"token id {token} at position {position} is outside the vocabulary "
                    f"of {self.vocab_size} tokens",
                )
        return ids

    def longest(self, limits: Limits) -> int:
        """Tokens that no prompt may exceed."""
        return _smallest(self.context_length, limits.prompt_tokens)

    def check_start(self, tokens: int, limits: Limits = NO_LIMITS) -> None:
        """Refuses a prompt whose start alone, of so many tokens, does not fit.

        A cut changes only the few tokens around it, which the margin is for.
        """
        longest = self.longest(limits)
        if tokens > longest + CUT_MARGIN_TOKENS:
            if longest < self.context_length:
                raise _over_limit(f"more than {longest}", longest)
            raise self._too_long(f"more than {longest}")

    def check_prompt(self, tokens: int, limits: Limits) -> None:
        most = limits.prompt_tokens
        if most is not None and tokens > most:
            raise _over_limit(str(tokens), most)

    def prompt_room(self, max_tokens: int | None, limits: Limits = NO_LIMITS) -> int:
        """Tokens of the longest prompt that leaves room for so many, or the default, or one."""
        default = min(self._defaults(limits), default=1)
        room = self.context_length - (max_tokens or default)
        return max(1, _smallest(room, limits.prompt_tokens))

    def _defaults(self, limits: Limits) -> list[int]:
        given = (self.default_max_tokens, limits.default_max_tokens)
        return [tokens for tokens in given if tokens is not None]

    def _too_long(self, prompt_tokens: str) -> Refusal:
        return Refusal(
            "context_length_exceeded",
            "prompt",
            f"This model's maximum context length is {self.context_length} tokens, and the "
            f"prompt has {prompt_tokens}, which leaves no room for an answer. Shorten the prompt.",
        )

    def output_len(
        self,
        ids: list[int],
        max_tokens: int | None,
        limits: Limits = NO_LIMITS,
        *,
        may_be_none: bool = False,
    ) -> int:
        """New tokens allowed: max_tokens; else the default, or what the context leaves if less.

        may_be_none: 0 may be asked for.
        """
        prompt_tokens = len(ids)
        if not prompt_tokens:
            raise Refusal(
                "invalid_parameter", "prompt", "The prompt has no tokens. Give a text or token ids."
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
            raise Refusal("invalid_parameter", "max_tokens", f"{max_tokens} is less than 1")
        if max_tokens > room:
            raise Refusal(
                "context_length_exceeded",
                "max_tokens",
                f"This model's maximum context length is {self.context_length} tokens. You asked "
                f"for {prompt_tokens + max_tokens} ({prompt_tokens} in the prompt, {max_tokens} "
                f"for the answer). Shorten the prompt, or ask for at most {room} new tokens.",
            )
        return int(max_tokens)


def _smallest(tokens: int, limit: int | None) -> int:
    return tokens if limit is None else min(tokens, limit)


def _over_limit(prompt_tokens: str, most: int) -> Refusal:
    return Refusal(
        "context_length_exceeded",
        "prompt",
        f"This server takes prompts of at most {most} tokens for this model, and the prompt has "
        f"{prompt_tokens}. Shorten the prompt.",
    )
