"""Chooses the endpoint that has the least work after it has done this request's.

Work is in tokens for each row. A prefix that an endpoint has cached is work that it saves, so one
number compares cached tokens with load, as Dynamo's KV router does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import inf
from random import Random
from typing import Generic

from proxy.pools.candidate import NOTICED, AnyCandidate, Candidate, Candidates
from proxy.pools.prefix_index import HolderIndex, PrefixIndex, PromptBlocks

ADAPTERS_AN_ENDPOINT = 4  # the default of max_loras: adapters on a GPU at a time
ADAPTER_TOKENS = 2_000.0  # what it costs to load a LoRA adapter, in outstanding tokens


class Policy(str, Enum):
    """PREFIX: least outstanding work less what is cached. RANDOM and ROUND_ROBIN ignore load."""

    PREFIX = "prefix"
    LEAST_OUTSTANDING = "least_outstanding"
    RANDOM = "random"
    ROUND_ROBIN = "round_robin"


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """What the choice needs of a request. prompt_tokens: exact or an estimate. output_tokens: as
    expected.
    """

    prompt_tokens: int
    blocks: PromptBlocks | None = None
    adapter: str | None = None
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Choice(Generic[AnyCandidate]):
    """cached_tokens: of the prompt, that the endpoint probably has cached."""

    candidate: AnyCandidate
    cached_tokens: float = 0.0


Saving = tuple[int, float, float]
"""Bits of endpoints, the tokens of work that they save, and those of the prompt among them."""

NOTHING_SAVED: Saving = (0, 0.0, 0.0)


class Chooser:
    """For one pool. clock: seconds, monotonic; the same as the endpoints'."""

    def __init__(
        self,
        policy: Policy,
        *,
        clock: Callable[[], float],
        random: Random,
        prefixes: PrefixIndex | None = None,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._random = random
        self._turn = random.randrange(1 << 16)  # several processes begin at different endpoints
        self._warming: list[Candidate] = []
        self.prefixes = prefixes or PrefixIndex()
        self.adapters = HolderIndex[str](ADAPTERS_AN_ENDPOINT)

    def start_slowly(self, candidate: Candidate) -> None:
        """The endpoint is new, or its breaker has closed: its share of the work grows slowly."""
        self._warm_up()  # forgets those whose time is over, also where nothing is chosen
        candidate.start_slowly(self._clock())
        self._watch(candidate)

    def slow_down(self, candidate: Candidate, slowness: float) -> None:
        """Its answers take so many times as long as the others'."""
        if slowness >= NOTICED or candidate.slowness > 1.0:
            candidate.slow_down(slowness if slowness >= NOTICED else 1.0, self._clock())
            self._watch(candidate)

    def end_slow_start(self, candidate: Candidate) -> None:
        """Its endpoint has left."""
        self._warming = [one for one in self._warming if one is not candidate]

    def choose(
        self, candidates: Candidates[AnyCandidate], request: RoutedRequest
    ) -> Choice[AnyCandidate] | None:
        """None without candidates. Does not count the request: see `sent`."""
        members = candidates.members
        if len(members) < 2:
            return Choice(members[0]) if members else None
        self._turn += 1
        if self._policy is Policy.ROUND_ROBIN:
            return Choice(members[self._turn % len(members)])
        if self._policy is Policy.RANDOM:
            return Choice(members[self._random.randrange(len(members))])
        if self._warming:
            self._warm_up()
        start = self._turn % len(members)  # equal endpoints take turns
        members = members[start:] + members[:start]
        savings, common = self._savings(candidates.bits, request), NOTHING_SAVED
        if savings:
            savings, common = _split(savings, candidates.bits)
        # never less than nothing, also where an adapter saves more than a short prompt costs
        prompt = max(0.0, request.prompt_tokens - common[1], savings[0][1] if savings else 0.0)
        tokens = prompt + request.output_tokens
        if savings:
            return _least_with(savings, members, tokens, common)
        return Choice(_least(members, tokens), common[2])

    def sent(self, candidate: Candidate, request: RoutedRequest) -> None:
        """The request was sent there, so its prompt and its adapter will be in that engine."""
        if not candidate.bit:
            return
        if request.blocks is not None and self._policy is Policy.PREFIX:
            self.prefixes.record(candidate.bit, request.blocks.newest_last)
        if request.adapter is not None:
            self.adapters.record(candidate.bit, (request.adapter,))

    def forget(self, candidate: Candidate) -> None:
        """The endpoint was restarted: its engine has nothing cached."""
        if candidate.bit:
            self.prefixes.forget(candidate.bit)
            self.adapters.forget(candidate.bit)

    def _watch(self, candidate: Candidate) -> None:
        if candidate.is_warming_up and candidate not in self._warming:
            self._warming.append(candidate)

    def _warm_up(self) -> None:
        now_s = self._clock()
        self._warming = [candidate for candidate in self._warming if candidate.warm_up(now_s)]

    def _savings(self, among: int, request: RoutedRequest) -> list[Saving]:
        """The largest saving first; each holder of a prefix has the adapter, too."""
        savings: list[Saving] = []
        adapter = request.adapter
        adapter_tokens = 0.0 if adapter is None else ADAPTER_TOKENS
        if self._policy is Policy.PREFIX and (blocks := request.blocks) is not None:
            for depth, bits in self.prefixes.match(blocks, among):
                cached = self.prefixes.cached_tokens(blocks, depth, request.prompt_tokens)
                savings.append((bits, cached + adapter_tokens, cached))
        if adapter is not None and (bits := self.adapters.holders.get(adapter, 0) & among):
            savings.append((bits, adapter_tokens, 0.0))
        return savings


def _split(savings: list[Saving], among: int) -> tuple[list[Saving], Saving]:
    """What some of them save more than all do, and what all of them save."""
    for index, (bits, saved, _) in enumerate(savings):
        if bits == among:
            more = [(one[0], one[1] - saved, one[2]) for one in savings[:index]]
            return more, savings[index]
    return savings, NOTHING_SAVED


def _least(members: tuple[AnyCandidate, ...], tokens: float) -> AnyCandidate:
    best, least = members[0], inf
    for member in members:
        work = member.tokens + member.extra_tokens + tokens
        score = work / member.capacity + member.penalty
        if score < least:
            best, least = member, score
    return best


def _least_with(
    savings: list[Saving], members: tuple[AnyCandidate, ...], tokens: float, common: Saving
) -> Choice[AnyCandidate]:
    """The least work less savings; but no request waits for a row to save work if another endpoint
    has a free one.
    """
    best, least, best_saves = members[0], inf, common
    plain, least_plain, plain_saves = best, inf, common
    savers = 0
    for saving in savings:
        savers |= saving[0]
    for member in members:
        work, saves = member.tokens + member.extra_tokens + tokens, common
        if savers & member.bit:
            for saves in savings:  # not next(…): this is the inner loop of every choice
                if saves[0] & member.bit:
                    break
        score = work / member.capacity + member.penalty
        if score < least_plain:
            plain, least_plain, plain_saves = member, score, saves
        if saves is not common:
            score -= saves[1] / member.capacity
        if score < least:
            best, least, best_saves = member, score, saves
    if plain.has_free_row and not best.has_free_row:
        return Choice(plain, plain_saves[2])
    return Choice(best, best_saves[2])
