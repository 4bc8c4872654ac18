"""What tokens count in the units of the limits. Used by `reservation`."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.access.limits.caller_meters import Amounts
from proxy.domain.output import Usage
from proxy.domain.price import Price


@dataclass(frozen=True, slots=True)
class Rates:
    """cached_weight: what a cached token counts in limits on tokens, 0 to 1."""

    price: Price
    cached_weight: float

    def reserved(self, needs: Needs) -> Amounts:
        prompt, output = sum(needs.prompts.values()), needs.output
        cost = self.price.nanos(prompt_tokens=prompt, cached_tokens=0, output_tokens=output)
        return (*needs.counts, prompt, output, prompt + output, cost)

    def used(self, usage: Usage, counts: tuple[int, int, int]) -> Amounts:
        prompt, cached, output = usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
        counted = prompt - int(cached * (1 - self.cached_weight))
        cost = self.price.nanos(prompt_tokens=prompt, cached_tokens=cached, output_tokens=output)
        return (*counts, counted, output, counted + output, cost)


@dataclass(slots=True)
class Needs:
    """The most that a request, or a later round of it, can use.

    counts: requests, running requests, running streams. prompts: tokens by the id of the engine's
    request. output: tokens of all choices.
    """

    counts: tuple[int, int, int]
    prompts: dict[str, int]
    output: int
