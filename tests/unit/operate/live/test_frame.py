"""A frame of `top` at two widths, how its rows are sorted, and how its numbers are written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.operate.live.frame import MOST_ROWS, Frame, Order, number, seconds
from tests.unit.operate.live.samples import BUSY, OVERVIEW, console, model, printed

URL = "http://127.0.0.1:9000"
WIDE = """\
http://127.0.0.1:9000  ready  loop lag p99 3.4 ms  last 10.0 s
q quit  sort: n name, r requests, t tokens, l TTFT
A note.

model                              req/s  failed/s  tok in/s  run  wait  TTFT p50     p99  tok out/s
demo                                12.3       0.2      1.2k    5     2   31.1 ms  1.41 s      45.7k
meta-llama/Llama-3.1-8B-Instruct       0         0         0    0     -         -       -          0

endpoint                                                    pool      state    run  wait   KV  tok/s
10.0.0.7:8001                                               default   ready      5     0  31%     1k
10.0.0.8:8001                                               spare[1]  ejected    -     -    -      0

tenant                                                                    req/s  tok in/s  tok out/s
acme                                                                         10      1.1k        901
[red]                                                                       0.5       100         90
"""
NARROW = """\
http://127.0.0.1:9000  ready  loop lag p99 3.4 ms  last 10.0
s
A note.

model          req/s  run  wait  TTFT p50     p99  tok out/s
demo            12.3    5     2   31.1 ms  1.41 s      45.7k
meta-llama/L…      0    0     -         -       -          0

endpoint                      state    run  wait   KV  tok/s
10.0.0.7:8001                 ready      5     0  31%     1k
10.0.0.8:8001                 ejected    -     -    -      0

tenant                                      req/s  tok out/s
acme                                           10        901
[red]                                         0.5         90
"""


def shown(frame: Frame, width: int) -> str:
    out = console(width)
    out.print(frame.rendered(width))
    return f"{printed(out)}\n"


def test_a_wide_frame():
    frame = Frame(overview=OVERVIEW, url=URL, notes=("A note.",), has_keys=True)
    assert shown(frame, 100) == WIDE


def test_a_narrow_frame_has_fewer_columns():
    frame = Frame(overview=OVERVIEW, url=URL, notes=("A note.",))
    assert shown(frame, 60) == NARROW


def names(order: Order) -> list[str]:
    models = (
        *(model("b", requests=2.0), model("a", tokens_out=1.0)),
        *(model("d", ttft_p99=9.0), model("c", requests=1.0)),
    )
    overview = replace(OVERVIEW, models=models, endpoints=(), tenants=())
    lines = shown(Frame(overview=overview, url=URL, order=order), 100).splitlines()
    return [line[0] for line in lines[3:]]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Order.NAME, "abcd"),
        (Order.REQUESTS, "bcad"),
        (Order.TOKENS, "abcd"),
        (Order.LATENCY, "dabc"),
    ],
)
def test_rows_are_sorted_the_largest_first_then_by_name(order, expected):
    assert "".join(names(order)) == expected


def test_of_many_rows_it_says_how_many_are_left_out():
    models = [model(f"m{at:02}") for at in range(MOST_ROWS + 4)]
    text = shown(Frame(overview=replace(OVERVIEW, models=models), url=URL), 100)
    assert f"m{MOST_ROWS - 1:02} " in text
    assert f"m{MOST_ROWS:02} " not in text
    assert "and 4 more" in text


def test_a_proxy_that_is_not_ready_and_knows_little():
    overview = replace(
        OVERVIEW, is_ready=False, lag_p99=None, models=(BUSY,), endpoints=(),
        tenants=(),
    )  # fmt: skip
    text = shown(Frame(overview=overview, url=URL), 100)
    assert text.splitlines()[0] == f"{URL}  not ready  last 10.0 s"
    assert "endpoint" not in text
    assert "tenant" not in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(
            (None, "-"),
            (0, "0"),
            (0.04, "0.04"),
            (0.00123, "0.001"),
            (3.0, "3"),
            (99.94, "99.9"),
            (99.96, "100"),
        ),
        *((999, "999"), (999.6, "1k"), (1234, "1.2k"), (2_500_000, "2.5M"), (3e9, "3G")),
    ],
)
def test_numbers_are_short(value, expected):
    assert number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "-"), (0.0004, "0.4 ms"), (0.0311, "31.1 ms"), (1.412, "1.41 s"), (4000, "4000 s")],
)
def test_times_have_three_digits(value, expected):
    assert seconds(value) == expected
