"""When a silent peer is asked, how often, and when it is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.triton.streams.link import SLOW_PING_S, Keepalive, KeepaliveTimes
from tests.doubles import clock

QUIET_S, ANSWER_S = 10.0, 5.0
FIRST_S = (
    2 * QUIET_S
)  # a connection begins with a word of the peer: the first silence is the second
NEXT_S = ANSWER_S + QUIET_S


class Watched:
    """A keepalive, and a peer that answers each PING at once. `asked` counts PINGs.

    speaks: each answer is an event of a stream.
    """

    def __init__(self, *, speaks: bool = False) -> None:
        self.asked = 0
        self.given_up: list[str] = []
        self._speaks = speaks
        self.keepalive = Keepalive(
            KeepaliveTimes(quiet_s=QUIET_S, answer_s=ANSWER_S),
            has_calls=lambda: True,
            ping=self._ping,
            give_up=self.given_up.append,
        )
        self.keepalive.start()

    def _ping(self) -> None:
        self.asked += 1
        asyncio.get_running_loop().call_soon(self._arrive)

    def _arrive(self) -> None:
        self.keepalive.has_data = True
        if self._speaks:
            self.keepalive.pings = 0


def run(test: Callable[[], Awaitable[None]]) -> None:
    clock.run(test())


def test_a_peer_that_only_answers_is_asked_twice_then_seldom():
    async def test() -> None:
        watched = Watched()
        await asyncio.sleep(FIRST_S + NEXT_S + SLOW_PING_S - 1)
        assert (watched.asked, watched.given_up) == (2, [])
        await asyncio.sleep(QUIET_S + 1)
        assert watched.asked == 3
        watched.keepalive.stop()

    run(test)


def test_a_message_makes_up_for_pings():
    async def test() -> None:
        watched = Watched(speaks=True)
        await asyncio.sleep(FIRST_S + 9 * NEXT_S + 1)
        assert watched.asked == 10
        watched.keepalive.stop()

    run(test)
