"""The loop of `top`: readings, keys and a proxy that goes away, on a clock of the test's own."""

from __future__ import annotations

import pytest

from proxy.domain.errors import LaunchError
from proxy.operate.live.frame import REQUESTS, Frame, Order
from proxy.operate.live.top import Reading, Top
from proxy.operate.live.window import parsed


class Terminal:
    """pressed: what ends each wait: a key with the second in which it comes, or nothing."""

    def __init__(self, *pressed: tuple[float, str]) -> None:
        self.now = 0.0
        self.requests = 0
        self.is_away = False
        self.pressed = [*pressed]
        self.orders: list[Order] = []
        self.notes: list[tuple[str, ...]] = []
        self.rates: list[float] = []

    def read(self) -> Reading:
        if self.is_away:
            raise LaunchError("it is away")
        self.requests += 20
        text = f'proxy_requests_total{{model="m",outcome="stop"}} {self.requests}\n'
        return Reading(page=parsed(text), listing=None, notes=("a note",))

    def wait(self, seconds: float) -> str | None:
        if self.pressed and self.pressed[0][0] < self.now + seconds:
            at, key = self.pressed.pop(0)
            self.now = max(self.now, at)
            return key
        self.now += seconds
        return None

    def show(self, frame: Frame) -> None:
        self.orders.append(frame.order)
        self.notes.append(frame.notes)
        self.rates.append(frame.window.rates(REQUESTS).get((), 0.0))

    def top(self) -> Top:
        return Top(self.read, self.wait, self.show, interval_s=2.0, url="u", clock=lambda: self.now)


def test_once_shows_one_frame_after_one_interval():
    terminal = Terminal()
    terminal.top().once()
    assert (terminal.rates, terminal.now) == ([10.0], 2.0)
    assert terminal.notes == [("a note",)]


def test_it_runs_until_q_with_a_frame_at_once_and_after_each_interval():
    terminal = Terminal((5.0, "q"))
    terminal.top().run()
    assert (terminal.rates, terminal.now) == ([0.0, 10.0, 10.0], 5.0)


def test_a_key_sorts_at_once_and_makes_no_interval_shorter():
    terminal = Terminal((1.0, "r"), (1.5, "?"), (4.5, "q"))
    terminal.top().run()
    tokens, requests = Order.TOKENS, Order.REQUESTS
    assert terminal.orders == [tokens, requests, requests, requests]
    assert terminal.rates == [0.0, 0.0, 10.0, 10.0]


def test_a_proxy_that_goes_away_leaves_the_last_frame_with_the_reason():
    class Leaving(Terminal):
        def wait(self, seconds: float) -> str | None:
            key = super().wait(seconds)
            self.is_away = self.now == 4.0
            return key

    terminal = Leaving((7.0, "q"))
    terminal.top().run()
    assert terminal.notes == [
        *(("a note",), ("a note",)),
        *(("Old figures: it is away",), ("a note",)),
    ]
    assert terminal.rates == [0.0, 10.0, 10.0, 40 / 6]


def test_one_frame_of_a_proxy_that_is_away_is_an_error():
    terminal = Terminal()
    top, terminal.is_away = terminal.top(), True
    with pytest.raises(LaunchError, match="it is away"):
        top.once()
    with pytest.raises(LaunchError, match="it is away"):
        terminal.top()
    assert terminal.rates == []
