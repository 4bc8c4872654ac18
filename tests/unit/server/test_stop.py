"""signals: one asks to stop, a second one hurries; SIGHUP reads the configuration again, and a
terminal that closes is a stop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from proxy.server.stop import Stop, on_hangup, stop_on_signals

IN_A_TERMINAL = """
import asyncio
from proxy.server.stop import Stop, on_hangup

async def main():
    stop = Stop()
    with on_hangup(lambda: print("read again", flush=True), stop):
        print("ready", flush=True)
        await stop.requested.wait()
        print("stop", flush=True)

asyncio.run(main())
"""


async def signalled() -> Stop:
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not await stop.unless_requested(asyncio.sleep(60))
        assert not stop.hurried.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert not await stop.unless_hurried(asyncio.sleep(60))
        return stop


def test_the_first_asks_and_the_second_hurries():
    assert asyncio.run(signalled()).hurried.is_set()


def test_work_that_ends_by_itself_is_done():
    async def work() -> bool:
        return await Stop().unless_requested(asyncio.sleep(0))

    assert asyncio.run(work())


def test_work_that_fails_raises():
    async def fail() -> None:
        raise OSError("full")

    async def work() -> bool:
        return await Stop().unless_requested(fail())

    with pytest.raises(OSError, match="full"):
        asyncio.run(work())


@pytest.mark.anyio
async def test_a_hangup_reads_again_and_does_not_stop():
    stop, received = Stop(), asyncio.Event()
    with on_hangup(received.set, stop):
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(received.wait(), 30)
    assert not stop.requested.is_set()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_a_terminal_that_closes_is_a_stop():
    ours, its = os.openpty()
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{IN_A_TERMINAL}",
        ],
        stdin=its,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        os.close(its)
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "read again\n"
        os.close(ours)  # the kernel sends SIGHUP to the session's leader
        assert process.stdout.readline() == "stop\n"
        assert process.wait(900) == 0
