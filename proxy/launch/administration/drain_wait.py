"""Waits until no process of a proxy has a stream on a drained endpoint. Called by `endpoints`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton_openai.proxy.launch.administration.process_connections import ProcessConnections
from triton_openai.proxy.processes.errors import LaunchError

EVERY_S = 0.5
DRAINED = "drained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """streams: still running. busy: processes that have some, or have not drained it yet."""

    streams: int
    busy: int
    processes: int

    @property
    def line(self) -> str:
        return f"{self.streams} streams on {self.busy} of {self.processes} processes"


def wait(
    connections: ProcessConnections,
    address: str,
    *,
    at_most_s: float | None,
    show: Callable[[Progress], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Returns when every process reports that it is drained, or that no pool has it any more.

    Raises:
        LaunchError: its streams run for longer than at_most_s, or it is not drained any more.
    """
    began = clock()
    while True:
        progress = _progress(connections.endpoints(), address)
        show(progress)
        if progress.busy == 0:
            return
        if at_most_s is not None and clock() - began >= at_most_s:
            raise LaunchError(
                f"{address} still has {progress.line} after {at_most_s:g} s. It gets no new ones "
                "and stays drained: wait again with the same command"
            )
        sleep(EVERY_S)


def _progress(reports: dict[str, Any], address: str) -> Progress:
    streams = busy = 0
    for report in reports.values():
        mine = [each for each in report["data"] if each["address"] == address]
        streams += sum(each["streams"] for each in mine)
        busy += any(each["state"] != DRAINED for each in mine)
    return Progress(streams=streams, busy=busy, processes=len(reports))
