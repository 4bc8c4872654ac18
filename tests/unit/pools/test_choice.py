"""The choice of an endpoint."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from proxy.domain.endpoints import EngineLoad
from proxy.pools.candidate import FIRST_SHARE, Candidate, Candidates, slow_start_share
from proxy.pools.choice import Chooser, Policy, RoutedRequest
from proxy.pools.prefix_index import PrefixIndex, prompt_blocks

PLAIN = RoutedRequest(100)


def send(member: Candidate, tokens: int, streams: int = 1) -> None:
    member.streams += streams
    member.tokens += tokens


class Pool:
    """Endpoints `a`, `b`, … of equal rows, a chooser, and a clock that the test moves."""

    def __init__(self, endpoints: int, rows: int = 64, policy: Policy = Policy.PREFIX) -> None:
        self.now_s = 0.0
        index = PrefixIndex()
        self.members = [
            Candidate(chr(97 + number), bit=index.add_endpoint(), rows=rows)
            for number in range(endpoints)
        ]
        self.candidates = Candidates(self.members)
        self.chooser = Chooser(
            policy,
            clock=lambda: self.now_s,
            random=random.Random(1),
            prefixes=index,
        )

    def work(self, *tokens: int) -> None:
        """What is outstanding at each endpoint, as one stream."""
        for member, amount in zip(self.members, tokens, strict=True):
            if amount:
                send(member, amount)

    def chosen(self, request: RoutedRequest = PLAIN, times: int = 60) -> Counter[str]:
        choices = [self.chooser.choose(self.candidates, request) for _ in range(times)]
        return Counter(choice.candidate.address for choice in choices if choice is not None)


def prompt(tokens: int, letter: str = "x") -> RoutedRequest:
    text = "".join(f"{letter}{number:07d}" for number in range(tokens // 2))
    return RoutedRequest(tokens, prompt_blocks(text, model="m"))


def test_the_endpoint_with_the_least_work_is_chosen():
    pool = Pool(3)
    pool.work(500, 200, 300)
    assert set(pool.chosen()) == {"b"}


@pytest.mark.parametrize("policy", list(Policy))
def test_endpoints_where_the_request_failed_are_not_chosen_again(policy):
    pool = Pool(3, policy=policy)
    left = pool.candidates.without({"b", "elsewhere"})
    choices = [pool.chooser.choose(left, prompt(4_000)) for _ in range(60)]
    assert {choice.candidate.address for choice in choices} == {"a", "c"}
    assert pool.candidates.without(()) is pool.candidates


@pytest.mark.parametrize("policy", [Policy.PREFIX, Policy.LEAST_OUTSTANDING, Policy.ROUND_ROBIN])
def test_equal_endpoints_take_turns(policy):
    assert set(Pool(3, policy=policy).chosen().values()) == {20}


def test_an_endpoint_of_twice_the_rows_gets_twice_the_work():
    pool = Pool(0)
    pool.members = [Candidate(str(rows), rows=rows) for rows in (64, 128)]
    pool.candidates = Candidates(pool.members)
    for _ in range(300):
        choice = pool.chooser.choose(pool.candidates, PLAIN)
        send(choice.candidate, 100)
    one, two = (member.streams for member in pool.members)
    assert two == pytest.approx(2 * one, abs=3)


def test_what_other_processes_sent_counts_by_the_engines_own_load():
    pool = Pool(2)
    pool.work(1_000, 100)
    load = EngineLoad(waiting=2, running=4, is_stale=False)
    pool.members[1].set_load(load, tokens_a_stream=300)
    assert pool.members[1].extra_streams == 5, "one of the six is ours"
    assert set(pool.chosen()) == {"a"}


def test_a_stale_load_counts_as_full_and_an_unknown_one_does_not():
    pool = Pool(2)
    pool.work(0, 90_000)
    pool.members[0].set_load(EngineLoad(), tokens_a_stream=300)
    pool.members[1].set_load(EngineLoad(is_stale=False), tokens_a_stream=300)
    assert set(pool.chosen()) == {"b"}
    pool.members[1].set_load(EngineLoad(), tokens_a_stream=300)
    assert set(pool.chosen()) == {"a"}, "all are full: the least work decides again"
    pool.members[0].set_load(EngineLoad(is_stale=False), tokens_a_stream=300)
    assert set(pool.chosen()) == {"a"}


def test_an_almost_full_kv_cache_gets_less():
    pool = Pool(2)
    pool.work(100, 400)
    pool.members[0].set_load(EngineLoad(kv_in_use=0.9, is_stale=False), tokens_a_stream=300)
    assert set(pool.chosen()) == {"a"}
    pool.members[0].set_load(EngineLoad(kv_in_use=1.0, is_stale=False), tokens_a_stream=300)
    assert set(pool.chosen()) == {"b"}


def test_the_endpoint_that_has_the_prefix_wins_until_its_load_outweighs_it():
    pool, request = Pool(3), prompt(2_000)
    pool.chooser.sent(pool.members[1], request)
    pool.work(0, 1_900, 0)
    choice = pool.chooser.choose(pool.candidates, request)
    assert (choice.candidate.address, choice.cached_tokens > 1_900) == ("b", True)
    assert set(pool.chosen(prompt(2_000, "y"))) == {"a", "c"}, "another prompt"
    pool.work(0, 200, 0)
    assert set(pool.chosen(request)) == {"a", "c"}


def test_no_request_waits_for_a_row_for_its_prefix_while_another_row_is_free():
    pool, request = Pool(2, rows=2), prompt(20_000)
    pool.chooser.sent(pool.members[0], request)
    pool.work(10, 10)
    assert set(pool.chosen(request)) == {"a"}
    pool.work(10, 0)
    assert set(pool.chosen(request)) == {"b"}
    pool.work(0, 10)
    assert set(pool.chosen(request)) == {"a"}, "both are full, so the prefix decides again"


def test_a_restarted_endpoint_has_no_prefix_and_no_adapter():
    pool, request = Pool(2), prompt(2_000)
    request = RoutedRequest(2_000, request.blocks, "pirate")
    pool.chooser.sent(pool.members[1], request)
    pool.work(0, 10)
    assert set(pool.chosen(request)) == {"b"}
    pool.chooser.forget(pool.members[1])
    assert set(pool.chosen(request)) == {"a"}


@pytest.mark.parametrize("policy", [Policy.PREFIX, Policy.LEAST_OUTSTANDING])
def test_an_adapter_goes_where_it_is_loaded_until_loading_it_is_cheaper(policy):
    pool, request = Pool(3, policy=policy), RoutedRequest(100, adapter="pirate")
    pool.chooser.sent(pool.members[2], request)
    pool.work(0, 0, 1_900)
    assert set(pool.chosen(request)) == {"c"}
    assert set(pool.chosen(RoutedRequest(100, adapter="poet"))) == {"a", "b"}
    pool.work(0, 0, 200)
    assert set(pool.chosen(request)) == {"a", "b"}


def test_conversations_stay_where_they_began_and_the_load_stays_even():
    """64 conversations over four endpoints, in random order."""
    pool, numbers = Pool(4), random.Random(2)
    texts = ["".join(numbers.choices("abcdefgh", k=4_000)) for _ in range(64)]
    matched, sent, running = 0.0, Counter[str](), []
    for turn in range(1_000):
        number = numbers.randrange(64)
        texts[number] += "".join(numbers.choices("abcdefgh", k=100))
        request = RoutedRequest(1_000, prompt_blocks(texts[number], model="m"))
        choice = pool.chooser.choose(pool.candidates, request)
        pool.chooser.sent(choice.candidate, request)
        send(choice.candidate, 1_256)
        running.append(choice.candidate)
        sent[choice.candidate.address] += 1
        matched += choice.cached_tokens / 1_000 if turn >= 200 else 0
        if len(running) > 32:
            send(running.pop(0), -1_256, streams=-1)
    assert matched / 800 > 0.7, "at random it would be about a quarter at first"
    assert max(sent.values()) < 1.5 * min(sent.values())


def test_the_share_grows_from_little_to_all_and_is_nearly_there_after_five_seconds():
    shares = [slow_start_share(age / 10) for age in range(120)]
    assert shares[0] == FIRST_SHARE
    assert all(before <= after for before, after in pairwise(shares))
    assert shares[10] < 0.5, "no herd in the first second"
    assert shares[50] > 0.9, "its share within five seconds"
    assert set(shares[100:]) == {1.0}
    assert slow_start_share(-1.0) == FIRST_SHARE, "a clock that stands still for a moment"
