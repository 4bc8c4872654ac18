"""The ledger of several proxies, in Redis or Valkey. Implements port.Ledger.

Each proxy also keeps a count of its own (`own_count`): from it, it grants its share while Redis
cannot be reached, and restores its part where Redis has lost the state.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from typing_extensions import Self

from proxy.ledger.in_process import Clock, steady_us
from proxy.ledger.outage import OutageMode
from proxy.ledger.own_count import OwnCount, SharedGrant
from proxy.ledger.port import Grant, Meter, Refusal
from proxy.ledger.redis_link import AWAY, RedisLink
from proxy.ledger.redis_state import RedisState

LEASE_S = 10.0
BEAT_S = 2.0


class RedisLedger:
    """mode: of an outage.

    lease_s: how long Redis keeps what this proxy holds after it was last heard of. clock: for
    tests, in place of Redis' own and of this machine's.
    """

    def __init__(
        self,
        url: str,
        mode: OutageMode,
        *,
        timeout_s: float = 0.25,
        beat_s: float = BEAT_S,
        lease_s: float = LEASE_S,
        clock: Clock | None = None,
    ) -> None:
        lease_us = int(lease_s * 1e6)
        self._state = RedisState(
            url, secrets.token_hex(8), lease_us=lease_us, timeout_s=timeout_s, clock=clock
        )
        self._mode = mode
        self._own = OwnCount(clock or steady_us)
        self.link = RedisLink(self._state, self._own, beat_s)

    async def __aenter__(self) -> Self:
        await self.link.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.link.stop()

    @property
    def outage(self) -> str | None:
        return self._mode.value if self.link.is_away else None

    @property
    def proxies(self) -> int:
        return self.link.proxies

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        """The call is not cancelled with its caller: what it reserves must be given back."""
        link = self.link
        if not link.is_open.is_set():
            await link.is_open.wait()
        if link.is_away:
            return self._reserve_own(meters, amounts)
        self._own.hold(meters, amounts)
        link.calls += 1
        call = asyncio.ensure_future(self._state.reserve(meters, amounts))
        try:
            result = await asyncio.shield(call)
        except asyncio.CancelledError:
            call.add_done_callback(lambda done: self._give_back(done, meters, amounts))
            raise
        except Exception as error:
            self._take_back(meters, amounts)
            if not isinstance(error, AWAY):
                raise
            link.lose(error)
            return self._reserve_own(meters, amounts)
        if link.is_away:  # since the call began: what has answered may be an empty state
            self._take_back(meters, amounts)
            return self._reserve_own(meters, amounts)
        if isinstance(result, Refusal):
            self._take_back(meters, amounts)
            return result
        link.calls -= 1
        return self._own.record(result)

    def amend(self, grant: Grant, amounts: Sequence[int]) -> None:
        self._change("amend", grant, amounts)

    def settle(self, grant: Grant, amounts: Sequence[int]) -> None:
        if not grant.is_settled:
            self._change("settle", grant, amounts)

    def _reserve_own(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        return self._own.reserve(self._mode, self.link.proxies, meters, amounts)

    def _change(self, operation: str, grant: Grant, amounts: Sequence[int]) -> None:
        assert isinstance(grant, SharedGrant)
        if changes := self._own.change(operation, grant, amounts):
            self.link.send(operation, changes)

    def _take_back(self, meters: Sequence[Meter], amounts: Sequence[int]) -> None:
        """A call has ended and holds nothing. Both counts change at once, since a beat sends what
        this proxy holds whenever no call is under way.
        """
        self._own.hold(meters, amounts, -1)
        self.link.calls -= 1

    def _give_back(
        self,
        call: asyncio.Future[Grant | Refusal],
        meters: Sequence[Meter],
        amounts: Sequence[int],
    ) -> None:
        """What was reserved for a caller that was cancelled meanwhile."""
        self._take_back(meters, amounts)
        if call.cancelled():
            return
        if (error := call.exception()) is not None:
            self.link.lose(error)
        elif isinstance(grant := call.result(), Grant):
            marked = zip(meters, grant.marks, amounts, [0] * len(meters), strict=True)
            self.link.send("settle", list(marked))
