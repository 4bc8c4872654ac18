"""When a silent peer is asked, how often, and when it is given up."""

from __future__ import annotations

import pytest

from triton_openai.proxy.triton.streams.keepalive import SLOW_PING_S, Keepalive, KeepaliveTimes

pytestmark = pytest.mark.anyio


class Watched:
    """A keepalive whose timer the test pulls. `asked` counts PINGs."""

    def __init__(self, *, has_calls: bool = True) -> None:
        self.asked = 0
        self.given_up: list[str] = []
        self.keepalive = Keepalive(
            KeepaliveTimes(quiet_s=1000, answer_s=5),
            has_calls=lambda: has_calls,
            ping=self._ping,
            give_up=self.given_up.append,
        )
        self.keepalive.start()
        self.look()  # a connection begins with a word of the peer

    def _ping(self) -> None:
        self.asked += 1

    def look(self) -> None:
        self.keepalive.stop()
        self.keepalive._look()

    def silence_then(self, *, has_events: bool) -> None:
        self.look()
        self.keepalive.data_arrived(has_events=has_events)
        self.look()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.keepalive.stop()


async def test_silence_brings_a_ping_and_more_of_it_the_end():
    with Watched() as watched:
        watched.look()
        assert (watched.asked, watched.given_up) == (1, [])
        watched.look()
        assert watched.given_up == ["the server did not answer a PING for 5 seconds"]


async def test_a_peer_that_speaks_or_has_no_calls_is_not_asked():
    with Watched() as watched, Watched(has_calls=False) as idle:
        for _ in range(5):
            watched.keepalive.data_arrived(has_events=False)
            watched.look()
            idle.look()
        assert (watched.asked, idle.asked, watched.given_up, idle.given_up) == (0, 0, [], [])


async def test_a_peer_that_only_answers_is_asked_twice_then_seldom():
    with Watched() as watched:
        for _ in range(10):
            watched.silence_then(has_events=False)
        assert (watched.asked, watched.given_up) == (2, [])
        watched.keepalive._pinged_at -= SLOW_PING_S
        watched.look()
        assert watched.asked == 3


async def test_a_message_makes_up_for_pings():
    with Watched() as watched:
        for _ in range(10):
            watched.silence_then(has_events=True)
        assert watched.asked == 10
