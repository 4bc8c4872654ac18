"""A parser's cost is linear in the text, even if each push is one character."""

from __future__ import annotations

import time

import pytest

from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES

WIDE = {"anyOf": [{"type": "string"}, *({"const": i} for i in range(10_000))]}
TOOLS = {"f": {"type": "object", "properties": {"x": {}, "wide": WIDE}}}
PIECES = ["[", "{", '{"a":', '{"name": "f", "arguments": {', "f(x=", " ", "\\", '"', "<"]
SMALL, LARGE = 300, 2_400


def spent(name: str, piece: str, characters: int, opening: str = "") -> float:
    parser = FAMILIES[name](TOOLS)
    start = time.thread_time()
    parser.push(opening)
    for _ in range(characters // len(piece)):
        parser.push(piece)
    parser.flush()
    return time.thread_time() - start


@pytest.mark.parametrize("name", FAMILIES)
def test_repeated_text_costs_no_more_than_its_length(name):
    openings = {"", *FAMILIES[name].starts}
    for opening in sorted(openings):
        for piece in PIECES:
            small = spent(name, piece, SMALL, opening)
            large = spent(name, piece, LARGE, opening)
            assert large < 24 * small + 0.05, (opening, piece)


SPACE = "]<]minimax[>["
INSIDE = [
    ("minimax_m3", f'{SPACE}<invoke name="f">', (f"{SPACE}<x>", f"{SPACE}<wide>1{SPACE}</wide>")),
    ("minimax_m3", f'{SPACE}<invoke name="f">{SPACE}<x>', (f"{SPACE}<item>", SPACE, "]")),
    (
        "cohere_xml",
        '<cofl:tool_call id="0" name="f">',
        (
            '<cofl:value name="x" type="dict">',
            '<cofl:value name="x" type="list"></cofl:value>',
            '<cofl:value name="wide" type="json">1</cofl:value>',
        ),
    ),
    ("cohere_xml", "<cofl:tool_call ", ('a="" ', "a")),
    (
        "kimi_k3",
        '<|open|>call tool="f"<|sep|>',
        ('<|open|>argument key="x" type="null"<|sep|>null<|close|>argument<|sep|>',),
    ),
]


@pytest.mark.parametrize(
    ("name", "opening", "piece"),
    [(name, opening, piece) for name, opening, pieces in INSIDE for piece in pieces],
)
def test_elements_cost_no_more_than_their_length(name, opening, piece):
    small = min(spent(name, piece, 50 * len(piece), opening) for _ in range(3))
    large = min(spent(name, piece, 800 * len(piece), opening) for _ in range(3))
    assert large < 48 * small + 0.05


@pytest.mark.parametrize("opening", ["```\n<tool_call>", "`<tool_call>", "`"])
@pytest.mark.parametrize("piece", ["<tool_call>", "\n   ", " ", "`"])
def test_code_costs_no_more_than_its_length(opening, piece):
    small = min(spent("hermes", piece, 1_000, opening) for _ in range(3))
    large = min(spent("hermes", piece, 16_000, opening) for _ in range(3))
    assert large < 64 * small + 0.05  # behind its bound, what is held begins anew


def test_a_key_of_a_large_schema_is_looked_up_once():
    def cost(keys: int) -> float:
        parser = FAMILIES["qwen3_coder"](TOOLS)
        start = time.thread_time()
        parser.push("<tool_call>\n<function=f>\n")
        for _ in range(keys):
            parser.push("<parameter=wide>\n1\n</parameter>\n")
        return time.thread_time() - start

    first = min(cost(1) for _ in range(3))
    assert cost(100) < 20 * first + 0.05
