"""The parent's end of the ledger: it owns the state, and its workers reach it over a Unix socket.

Started by http_server.workers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from triton_openai.proxy.ledger import wire
from triton_openai.proxy.ledger.in_process import InProcessLedger
from triton_openai.proxy.ledger.port import Grant, LedgerUnavailable, Meter

SOCKET = "ledger"  # in the folder that the workers share
KNOWN_METERS = 100_000  # of one worker


@asynccontextmanager
async def served(ledger: InProcessLedger, folder: Path) -> AsyncIterator[None]:
    """Serves the ledger to this parent's workers, in a folder that only its user may enter."""
    async with wire.served(folder / SOCKET, lambda: _WorkerConnection(ledger)):
        yield


class _WorkerConnection(wire.Framed):
    """One worker, and what its running requests hold. When it dies, all of that is given back.

    A meter is sent once, and called by its number from then on; the oldest are forgotten, which
    the worker counts in the same way.
    """

    def __init__(self, ledger: InProcessLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._held: dict[int, Grant] = {}
        self._meters: OrderedDict[int, Meter] = OrderedDict()

    def take(self, message: wire.Message) -> None:
        match message:
            case [wire.RESERVE, number, meters, amounts]:
                self._reserve(number, meters, amounts)
            case [wire.AMEND, number, amounts]:
                self._ledger.amend(self._held[number], amounts)
            case [wire.SETTLE, number, amounts]:
                self._ledger.settle(self._held.pop(number), amounts)
            case [wire.CANCEL, number]:
                if (grant := self._held.pop(number, None)) is not None:
                    self._ledger.settle(grant, [0] * len(grant.meters))
            case _:
                raise ValueError(f"an unknown message: {message!r}")

    def end(self) -> None:
        for grant in self._held.values():
            self._ledger.abandon(grant)
        self._held.clear()

    def _reserve(self, number: int, meters: list[int | wire.Message], amounts: list[int]) -> None:
        try:
            result = self._ledger.take([self._meter(each) for each in meters], amounts)
        except LedgerUnavailable as error:
            self.send([number, wire.UNAVAILABLE, str(error)])
            return
        if isinstance(result, Grant) and any(amounts):
            self._held[number] = result
        self.send(wire.answer_of(number, result))

    def _meter(self, given: int | wire.Message) -> Meter:
        """A meter, or the number of one that the worker has sent before."""
        if isinstance(given, int):
            return self._meters[given]
        number, *fields = given
        if len(self._meters) >= KNOWN_METERS:
            self._meters.popitem(last=False)
        meter = self._meters[number] = wire.meter_of(fields)
        return meter
