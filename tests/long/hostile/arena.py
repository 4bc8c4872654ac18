"""The server under attack and the bystander beside it; brought up again after an attack ends it."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Sequence
from urllib.parse import urlsplit

import psutil

from tests.long.hostile import processes, stand
from tests.long.hostile.attack import Attack, Target
from tests.long.hostile.caller import allow_many_connections
from tests.long.hostile.processes import Processes
from tests.long.hostile.trial import MB
from tests.long.hostile.watch import Watch

SETTLED_BYTES = 1_500 * MB  # a stack of our own that stays larger is started anew


class Arena:
    """A server at `url`, which is left as it is, or else a stack of its own.

    guard_mb: a proxy that is larger is killed. limit_mb: address space beyond what it has at its
    start (RLIMIT_AS), for a stack of its own only.
    """

    def __init__(
        self,
        url: str | None = None,
        pids: Sequence[int] = (),
        *,
        timeout_s: float = 30,
        guard_mb: float = 4_000,
        limit_mb: float | None = None,
    ) -> None:
        self._url = url
        self._pids = list(pids)
        self._timeout_s = timeout_s
        self._guard_bytes = int(guard_mb * MB)
        self._limit_mb = limit_mb
        self._stack = contextlib.ExitStack()
        self._watch: Watch | None = None
        self._is_on_engine = False
        self.target = Target(host="127.0.0.1", port=0)
        self.watched = Processes(())

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ready_for(self, attack: Attack) -> Watch:
        """Its bystander, whose stream flows. Raises RuntimeError where it does not get to."""
        if self._needs_start:
            self._start()
        watch = self._watch_for(attack)
        if watch.wait_flowing():
            return watch
        if self._url is None:
            self._start()
        watch = self._watch_for(attack, is_new=True)
        if not watch.wait_flowing():
            raise RuntimeError("the bystander's stream does not flow")
        return watch

    @property
    def is_alive(self) -> bool:
        return self.watched.are_alive

    @property
    def _needs_start(self) -> bool:
        if not self.watched.proxies:
            return True
        grown = processes.tree_rss(self.watched.proxies) > SETTLED_BYTES
        return self._url is None and (grown or not self.is_alive)

    def _start(self) -> None:
        self._stop()
        allow_many_connections()
        if self._url is None:
            stack = self._stack.enter_context(stand.running())
            host, port = "127.0.0.1", stack.port
        else:
            parts = urlsplit(self._url)
            host, port = parts.hostname or "127.0.0.1", parts.port or 80
        self.target = Target(host=host, port=port, timeout_s=self._timeout_s)
        self.watched = processes.of_pids(self._pids) if self._pids else processes.of_port(port)
        if self._limit_mb is not None and self._url is None:
            self._limit(int(self._limit_mb * MB))

    def _limit(self, more_bytes: int) -> None:
        for pid in self.watched.proxies:
            process = psutil.Process(pid)
            limit = process.memory_info().vms + more_bytes
            process.rlimit(resource.RLIMIT_AS, (limit, limit))

    def _watch_for(self, attack: Attack, *, is_new: bool = False) -> Watch:
        """One at a time: a bystander on the engine takes CPU itself."""
        if self._watch is None or is_new or self._is_on_engine is not attack.is_on_engine:
            if self._watch is not None:
                self._watch.close()
            self._is_on_engine = attack.is_on_engine
            self._watch = Watch(
                self.target,
                self.watched,
                is_on_engine=attack.is_on_engine,
                guard_bytes=self._guard_bytes,
            )
        return self._watch

    def _stop(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = None
        self._stack.close()
