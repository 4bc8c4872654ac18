"""supervisor: restarts what dies, at growing distances; a first start that fails is fatal."""

from __future__ import annotations

import asyncio

import pytest

from proxy.domain.errors import LaunchError
from proxy.operate.triton_server.server import StartCrashed
from proxy.operate.triton_server.supervisor import Supervisor

pytestmark = pytest.mark.anyio


class ScriptedServer:
    """Lives for the given times, in seconds of its own clock; a None is a start that fails with
    `error`.
    """

    def __init__(self, *lives_s: float | None, error: type[LaunchError] = LaunchError) -> None:
        self._lives_s = list(lives_s)
        self._error = error
        self.now_s = 0.0
        self.slept_s: list[float] = []
        self.is_stopped = False
        self.script_ended = asyncio.Event()

    async def start(self) -> None:
        if self._lives_s and self._lives_s[0] is None:
            self._lives_s.pop(0)
            raise self._error("no")

    async def wait(self) -> str:
        if not self._lives_s:
            self.script_ended.set()
            await asyncio.Event().wait()
        self.now_s += self._lives_s.pop(0) or 0.0
        return "signal 9"

    async def stop(self, grace_s: float = 0.0) -> None:
        self.is_stopped = True

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


@pytest.mark.parametrize(
    ("lives_s", "expected"),
    [
        ([1.0] * 8, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]),
        ([1.0, 1.0, 60.0, 1.0], [0.2, 0.4, 0.2, 0.4]),  # a long life forgets old deaths
        ([1.0, None, None, 1.0], [0.2, 0.4, 0.8, 1.6]),  # a failed restart counts as a death
        # a first start that crashes is tried again
        ([None], [0.2]),
        ([None, None], [0.2, 0.4]),
    ],
)
async def test_it_is_restarted_at_once_and_then_ever_later(lives_s, expected):
    server, said = ScriptedServer(*lives_s, error=StartCrashed), []
    supervisor = Supervisor(server, said.append, clock=server.clock, sleep=server.sleep)
    await supervisor.start()
    await asyncio.wait_for(server.script_ended.wait(), 5)
    assert supervisor.is_running
    await supervisor.stop(grace_s=0)
    assert server.is_stopped
    assert server.slept_s == expected
    is_first = lives_s[0] is None
    assert (said[0] == "start of tritonserver failed, and is tried again: no") is is_first


@pytest.mark.parametrize(("error", "expected"), [(LaunchError, []), (StartCrashed, [0.2, 0.4])])
async def test_a_first_start_that_fails_or_always_crashes_is_fatal(error, expected):
    server = ScriptedServer(None, None, None, None, error=error)
    supervisor = Supervisor(server, lambda line: None, sleep=server.sleep)
    with pytest.raises(error):
        await supervisor.start()
    assert server.slept_s == expected
    assert not supervisor.is_running
