"""Connections to all processes of a proxy: each process counts its own streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from triton_openai.proxy.launch.administration.remote import answer
from triton_openai.proxy.processes.errors import LaunchError

ENDPOINTS = "/admin/v1/endpoints"
SPARE = 200  # connections beyond one for each process, until every process has one

Connect = Callable[[], httpx.Client]


class ProcessConnections:
    """`with` closes them. The proxy hands a new connection to the process with the fewest open
    ones, so that connections which stay open reach every process in the end.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: list[httpx.Client] = []

    def __enter__(self) -> ProcessConnections:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._open:
            client.close()

    def endpoints(self) -> dict[str, Any]:
        """The list of endpoints of each process, by the name of the process.

        Raises:
            LaunchError: the proxy cannot be reached, or these are not the processes of one proxy.
        """
        found: dict[str, Any] = {}
        kept: dict[str, httpx.Client] = {}
        tried = 0
        while not found or len(found) < next(iter(found.values()))["processes"]:
            client = self._next(tried)
            tried += 1
            listed = answer(client, "GET", ENDPOINTS)
            found[listed["process"]] = listed
            kept.setdefault(listed["process"], client)
            if tried > SPARE + listed["processes"]:
                raise LaunchError(
                    f"of the proxy's {listed['processes']} processes only {len(found)} could be "
                    "reached: give the proxy's own address with --url, and none of a load balancer"
                )
        self._keep_only(kept)
        return found

    def _next(self, number: int) -> httpx.Client:
        if number == len(self._open):
            self._open.append(self._connect())
        return self._open[number]

    def _keep_only(self, kept: dict[str, httpx.Client]) -> None:
        for client in self._open:
            if client not in kept.values():
                client.close()
        self._open = [*kept.values()]
