"""The writes of one turn of the loop become one write, in order, and none is lost at the end."""

from __future__ import annotations

import asyncio

from triton_openai.proxy.http_server.joined_writes import MOST_BYTES, JoiningTransport


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def write_eof(self) -> None:
        self.calls.append("eof")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def get_write_buffer_size(self) -> int:
        return 100


def calls(act) -> list[bytes | str]:
    """What reaches the wire when `act(transport, wire)` runs in a loop, two turns later."""

    async def run() -> list[bytes | str]:
        wire = Wire()
        act(JoiningTransport(wire, asyncio.get_running_loop()), wire)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return wire.calls

    return asyncio.run(run())


def written(*parts: bytes, then: str | None = None):
    def act(transport, wire):
        for part in parts:
            transport.write(part)
        assert transport.get_write_buffer_size() == 100 + sum(map(len, parts))
        assert not wire.calls
        if then is not None:
            getattr(transport, then)()

    return act


def test_the_writes_of_a_turn_become_one():
    assert calls(written(b"head", b"first", b"second")) == [b"headfirstsecond"]
    assert calls(written(b"alone")) == [b"alone"]


def test_each_turn_has_its_own():
    async def run():
        wire = Wire()
        transport = JoiningTransport(wire, asyncio.get_running_loop())
        for part in (b"a", b"b"):
            transport.write(part)
            await asyncio.sleep(0)
        return wire.calls

    assert asyncio.run(run()) == [b"a", b"b"]


def test_what_ends_in_order_is_sent_first():
    assert calls(written(b"a", b"b", then="close")) == [b"ab", "close"]
    assert calls(written(b"a", b"b", then="write_eof")) == [b"ab", "eof"]


def test_an_abort_sends_nothing_more():
    assert calls(written(b"a", then="abort")) == ["abort"]


def test_much_does_not_wait():
    half = bytes(MOST_BYTES // 2)

    def act(transport, wire):
        transport.write(half)
        transport.write(half)
        assert not wire.calls
        transport.write(b"x")
        assert wire.calls == [half + half + b"x"]
        transport.write(b"y")

    assert calls(act)[1:] == [b"y"]
