"""The probabilities of a question's options, each with a label of letters: the model's own, among
the labels, for the answer that comes next.

A guide allows the labels alone, and engines report log-probabilities among what a guide allows, so
those of all labels come with one token. With more options than engines report, a label has two or
three letters, and each letter is asked for behind the ones before it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product

from proxy.access.limits.request_limiter import Reservation
from proxy.domain import plain_spans
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import EngineFailed, unsupported
from proxy.domain.model import ModelCard
from proxy.domain.output import Alternative
from proxy.domain.record import RequestRecord
from proxy.generation.choice.choice_cost import ChoiceCost
from proxy.generation.embeddings import side_by_side
from proxy.generation.prepare import Plan
from proxy.generation.stream.engine_stream import EngineStream, StreamMeans

AT_ONCE = 8  # questions of one request
TOP = 20  # alternatives that every engine reports
LETTERS = "ABCDEFGHIJ"  # some tokenizers have two tokens for a letter
LONGEST = 3  # letters of a label


@lru_cache(maxsize=256)
def labels_of(options: int) -> tuple[str, ...]:
    """Labels of as many letters, at most LONGEST, in the order of the options."""
    size = next(size for size in range(1, LONGEST + 1) if options <= len(LETTERS) ** size)
    return tuple("".join(one) for one in islice(product(LETTERS, repeat=size), options))


@lru_cache(maxsize=256)
def _asked_behind(options: int) -> tuple[str, ...]:
    """The beginnings of labels, "" among them, that more than one letter may follow."""
    labels = labels_of(options)
    begun = Counter(
        label[:size]
        for size in range(len(labels[0]))
        for label in dict.fromkeys(one[: size + 1] for one in labels)
    )
    return tuple(letters for letters, next_letters in begun.items() if next_letters > 1)


def asks_of(requests: Sequence[EngineRequest], options: Sequence[int]) -> list[EngineRequest]:
    """What the engine is asked in all, without the letters that some prompts end with.

    requests: one for each question.
    """
    return [
        replace(request, id=f"{request.id}-{letters}") if letters else request
        for request, count in zip(requests, options, strict=True)
        for letters in _asked_behind(count)
    ]


def check_decides(card: ModelCard) -> None:
    """Raises InvalidRequest: the model cannot be held to labels."""
    if "constraint" not in card.capabilities or GuideKind.REGEX not in card.facts.guide_kinds:
        raise unsupported(
            f"The model {card.name!r} cannot be held to the options of a question: its engine "
            f"accepts no guides of the kind {GuideKind.REGEX.value!r}. Ask another model.",
            param="model",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """plan: one prompt for each question, which ends where the answer begins. reservation: of all
    that `asks_of` says; None where the caller has no limits.
    """

    plan: Plan
    means: StreamMeans
    record: RequestRecord
    reservation: Reservation | None
    counts_cached: bool

    async def probabilities(self, options: Sequence[int]) -> list[list[float]]:
        """For each question, in order, those of its options, which add up to 1. The first question
        is asked alone: then the others find what they share with it in the engine's cache.

        options: how many each question has.

        Raises:
            ProxyError: as EngineStream.deltas. The first that fails ends the others.
        """
        found: list[list[float]] = [await self._answered(0, options[0]), *[[]] * len(options[1:])]
        left = iter(range(1, len(options)))

        async def work() -> None:
            for index in left:
                found[index] = await self._answered(index, options[index])

        await side_by_side(work, min(AT_ONCE, len(options) - 1))
        return found

    async def _answered(self, index: int, options: int) -> list[float]:
        prompt = self.plan.engine_requests[index]
        text = prompt.text or ""
        if (reasoning := self.plan.syntax.reasoning_parser) is not None:
            opening = plain_spans.opening(text, prompt.plain_spans, "")
            is_thinking = reasoning.behind(opening).is_thinking
            text += reasoning.closing if is_thinking else reasoning.before_answer
        return await self._spread(index, replace(prompt, text=text), labels_of(options))

    async def _spread(
        self, index: int, prompt: EngineRequest, labels: Sequence[str]
    ) -> list[float]:
        """The probabilities of labels, which have one length and are in alphabetic order."""
        letters = list(dict.fromkeys(label[0] for label in labels))
        chances = await self._chances(index, prompt, letters) if len(letters) > 1 else [1.0]
        found = list[float]()
        for letter, chance in zip(letters, chances, strict=True):
            rest = [label[1:] for label in labels if label[0] == letter]
            if rest == [""]:
                found.append(chance)
                continue
            text = f"{prompt.text}{letter}"
            behind = replace(prompt, id=f"{prompt.id}-{letter}", text=text)
            found += [chance * each for each in await self._spread(index, behind, rest)]
        return found

    async def _chances(
        self, index: int, prompt: EngineRequest, letters: Sequence[str]
    ) -> list[float]:
        """The probabilities of letters that may come next."""
        part = self.plan.part(index).request
        guide = Constraint(GuideKind.REGEX, f"[{''.join(letters)}]", field="questions")
        asked = replace(prompt, constraint=guide)
        cost = ChoiceCost(self.plan.card, self.record, counts_cached=self.counts_cached)
        cost.begin_stream(counts_gaps=False)
        has_begun = index > 0 or prompt.id != self.plan.engine_requests[0].id
        stream = EngineStream(part, asked, self.means, self.record, cost, has_begun=has_begun)
        top: tuple[Alternative, ...] = ()
        async with aclosing(stream.deltas()) as deltas:
            async for delta in deltas:
                cost.see(delta)
                if delta.prompt_tokens is not None:
                    cost.count_prompt(delta)
                    if self.reservation is not None:
                        self.reservation.see_first(asked.id, delta, counts_prompt=True)
                cost.tokens += len(delta.token_bytes)
                if delta.log_probs:
                    top = top or delta.log_probs[0].top
        return _shares(top, [letter.encode() for letter in letters])


def _shares(top: Sequence[Alternative], letters: Sequence[bytes]) -> list[float]:
    """The letters' probabilities among themselves. Raises EngineFailed: none was reported."""
    found = [one for one in top if one.token_bytes in letters and one.log_prob > -math.inf]
    if not found:
        raise EngineFailed("The model server failed.", detail="no log-probabilities of the options")
    best = max(one.log_prob for one in found)
    weights = dict.fromkeys(letters, 0.0)
    for one in found:
        weights[one.token_bytes] += math.exp(one.log_prob - best)
    total = sum(weights.values())
    return [weight / total for weight in weights.values()]
