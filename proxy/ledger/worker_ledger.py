"""A worker's end of the parent's ledger. Implements port.Ledger over one pipelined connection."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from typing_extensions import Self

from triton_openai.proxy.ledger import wire
from triton_openai.proxy.ledger.parent_ledger import KNOWN_METERS
from triton_openai.proxy.ledger.port import Grant, LedgerUnavailable, Meter, Refusal


class WorkerLedger:
    """path: of the parent's socket. Without the parent there is no ledger: a parent that dies ends
    its workers.
    """

    outage: str | None = None
    proxies = 1

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: _Connection | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_unix_connection(_Connection, str(self._path))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._connection is not None:
            self._connection.close()

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        if self._connection is None:
            raise LedgerUnavailable("the parent's ledger is not connected")
        answer = await self._connection.reserve(meters, amounts)
        if answer[1] == wire.UNAVAILABLE:
            raise LedgerUnavailable(answer[2])
        return wire.result_of(answer, meters, amounts)

    def amend(self, grant: Grant, amounts: Sequence[int]) -> None:
        grant.amounts = amounts
        if self._connection is not None:
            self._connection.send((wire.AMEND, grant.id, amounts))

    def settle(self, grant: Grant, amounts: Sequence[int]) -> None:
        if grant.is_settled:
            return
        grant.is_settled = True
        if self._connection is not None and any(grant.amounts):
            self._connection.send((wire.SETTLE, grant.id, amounts))


class _Connection(wire.Framed):
    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[wire.Message]] = {}
        self._sent: OrderedDict[Meter, int] = OrderedDict()
        self._has_ended = False

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> wire.Message:
        """The parent's answer. What it grants to a caller that was cancelled is given back."""
        if self._has_ended or not self.is_connected:
            raise LedgerUnavailable("the connection to the parent's ledger has ended")
        number = next(self._numbers)
        answer: asyncio.Future[wire.Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self.send((wire.RESERVE, number, [self._named(each) for each in meters], amounts))
        try:
            return await answer
        except asyncio.CancelledError:
            if not answer.cancelled():  # it came in the same turn of the event loop
                self.send((wire.CANCEL, number))
            raise

    def take(self, message: wire.Message) -> None:
        answer = self._waiting.pop(message[0])
        if not answer.cancelled():
            answer.set_result(message)
        else:
            self.send((wire.CANCEL, message[0]))

    def end(self) -> None:
        self._has_ended = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LedgerUnavailable("the parent's ledger has ended"))
        self._waiting.clear()

    def _named(self, meter: Meter) -> int | list[object]:
        """Its number, and at first the meter itself: see parent_ledger."""
        known = self._sent.get(meter)
        if known is not None:
            return known
        if len(self._sent) >= KNOWN_METERS:
            self._sent.popitem(last=False)
        number = self._sent[meter] = next(self._numbers)
        return [number, *wire.packed(meter)]
