"""Guides in the engine: whatever is sampled under the mask conforms, and a replay follows it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from grammars.xgrammar_loader import grammar_compiler
from guides.compiler import GuideCompiler
from guides.mask import GuideMask
from guides.state import REPLAY_AT_ONCE, GuideBroken, GuideState, GuideTooSlow
from port import BadParameter, Guide
from tests.fixtures.guide_info import DEMO, VOCAB_SIZE, allowed_ids, filled, walk
from tests.fixtures.stack import HANG_S, eventually

WALKS = 20
STALL_AT_MOST_S = 0.15  # of CPU time: a machine that is busy with other work holds up no test
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        "boss": {"type": ["boolean", "null"]},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "tag",
        "begin": "<call>",
        "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
        "end": "</call>",
    },
}


def is_person(text: str) -> bool:
    person = json.loads(text)
    return (
        {"name", "age", "tags"} <= set(person) <= set(PERSON["properties"])
        and isinstance(person["name"], str)
        and len(person["name"]) <= 12
        and type(person["age"]) is int
        and 0 <= person["age"] <= 150
        and len(person["tags"]) <= 3
        and set(person["tags"]) <= {"a", "b"}
        and person.get("boss") in (None, True, False)
    )


def is_call(text: str) -> bool:
    inner = re.fullmatch(r"<call>(.*)</call>", text, re.DOTALL)
    return inner is not None and type(json.loads(inner[1])) is int


GUIDES = [
    (Guide("json", ""), lambda text: isinstance(json.loads(text), (dict, list))),
    (Guide("json_schema", json.dumps(PERSON)), is_person),
    (Guide("regex", r"\d{4}-\d\d(, (yes|no|ça va))?"), None),
    (Guide("ebnf_grammar", 'root ::= "(" root ")" | [0-9]+'), None),
    (Guide("structural_tag", json.dumps(TAG)), is_call),
]


def conforms(guide: Guide, is_right, text: str) -> bool:
    if guide.kind == "regex":
        return re.fullmatch(guide.text, text) is not None
    if guide.kind == "ebnf_grammar":
        depth = text.count("(")
        return re.fullmatch(rf"\({{{depth}}}[0-9]+\){{{depth}}}", text) is not None
    return is_right(text)


@pytest.mark.parametrize(("guide", "is_right"), GUIDES, ids=[g.kind for g, _ in GUIDES])
def test_whatever_is_sampled_under_the_mask_conforms(guide, is_right, compiler, mask, vocabulary):
    compiled = compiler.compile(guide).result()
    random = np.random.default_rng(0)
    walks = [walk(GuideState(compiled), mask, vocabulary, random) for _ in range(WALKS)]
    ended = [text.decode() for text in walks if text is not None]
    assert len(ended) >= WALKS // 2
    assert len(set(ended)) > 1
    assert [text for text in ended if not conforms(guide, is_right, text)] == []


def _is_ready(mask: GuideMask, states: list) -> bool:
    return not mask.late_rows(states)


def test_threads_fill_a_batch_as_its_rows_one_by_one_and_free_rows_are_all_ones(
    compiler, vocabulary
):
    compiled = [compiler.compile(guide).result() for guide, _ in GUIDES]
    rows = [*compiled, None, *compiled, None]
    states, alone = ([GuideState(c) if c else None for c in rows] for _ in range(2))
    random = np.random.default_rng(1)
    together, single = GuideMask(VOCAB_SIZE, threads=2), GuideMask(VOCAB_SIZE, threads=1)
    for _ in range(15):
        eventually(partial(_is_ready, together, states), 10, "all masks are ready")
        for row, mine, theirs in zip(together.of(states), states, alone, strict=True):
            if mine is None:
                assert (row == -1).all()
                continue
            np.testing.assert_array_equal(filled(single, [theirs])[0], row)
            choices = allowed_ids(row)
            token = int(random.choice(choices[~np.isin(choices, vocabulary.end_ids)]))
            mine.take(token), theirs.take(token)
        states, alone = states[1:] + states[:1], alone[1:] + alone[:1]  # as others leave
        if any(s is not None and len(allowed_ids(filled(single, [s])[0])) < 2 for s in alone):
            break
    together.close()


def test_the_first_guide_imports_xgrammar_and_neither_torch_nor_transformers(vocabulary):
    code = (
        "import sys, pathlib, port\n"
        "from guides import compiler\n"
        f"info = pathlib.Path({str(vocabulary.info_file)!r})\n"
        "c = compiler.GuideCompiler(info, cache_bytes=1, threads=1)\n"
        'c.compile(port.Guide(\'structural_tag\', \'{"type": "structural_tag", '
        '"format": {"type": "regex", "pattern": "a+"}}\')).result()\n'
        "c.close()\n"
        "print(sorted({'torch', 'transformers', 'xgrammar'} & set(sys.modules)))\n"
    )
    assert in_engine_folder(code) == "['xgrammar']\n"


def test_a_version_that_needs_more_of_them_gets_them(tmp_path):
    (tmp_path / "torch.py").write_text("threads = 1\n")
    (tmp_path / "xgrammar.py").write_text("import torch\nassert torch.threads == 1\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from grammars.xgrammar_loader import load_xgrammar\n"
        "print(load_xgrammar().torch.threads, sys.modules['torch'].threads)\n"
    )
    assert in_engine_folder(code) == "1 1\n"


@pytest.mark.parametrize("version", ["v9", "v16", "v18"])
def test_the_table_of_another_version_is_read(tmp_path, version):
    fields = json.loads((DEMO / "guide.json").read_text())
    (tmp_path / "guide.json").write_text(json.dumps({**fields, "__VERSION__": version}))
    grammar = grammar_compiler(tmp_path / "guide.json").compile_regex("a")
    read = json.loads(grammar.tokenizer_info.serialize_json())
    assert read | {"__VERSION__": ""} == fields | {"__VERSION__": ""}


def test_a_token_that_does_not_follow_is_an_error_and_so_is_one_after_the_end(
    compiler, mask, vocabulary
):
    state = GuideState(compiler.compile(Guide("regex", "ab")).result())
    a, b = vocabulary.table.index(b"a"), vocabulary.table.index(b"b")
    filled(mask, [state])
    with pytest.raises(GuideBroken, match=f"token {b} does not follow"):
        state.take(b)
    for token in (a, b):
        filled(mask, [state])
        state.take(token)
    assert not state.is_terminated
    assert allowed_ids(filled(mask, [state])[0]).tolist() == vocabulary.end_ids
    state.take(vocabulary.end_id)
    assert state.is_terminated
    assert filled(mask, [state]) is None
    with pytest.raises(GuideBroken):
        state.take(a)


def test_the_name_of_a_special_token_is_text_and_the_token_itself_is_not_allowed(
    compiler, mask, vocabulary
):
    special = [i for i, value in enumerate(vocabulary.table) if not value]
    assert vocabulary.end_id in special
    state = GuideState(compiler.compile(Guide("regex", r"<\|im_start\|>")).result())
    assert not set(special) & set(allowed_ids(filled(mask, [state])[0]).tolist())


def test_the_least_recently_used_guides_go_when_the_cache_is_full(vocabulary):
    def of(n: int) -> Guide:
        return Guide("regex", f"x{{{n}}}")

    probe = GuideCompiler(vocabulary.info_file, cache_bytes=10**9, threads=1)
    size = probe.compile(of(3)).result().size_bytes
    small = GuideCompiler(vocabulary.info_file, cache_bytes=int(2.5 * size), threads=1)
    first, second = (small.compile(of(n)) for n in (3, 4))
    first.result(), second.result()
    assert small.compile(of(3)) is first
    small.compile(of(5)).result()
    small.compile(of(5)).result()
    assert small.compile(of(3)) is first
    assert small.compile(of(4)) is not second
    probe.close()
    small.close()


def test_the_first_guide_holds_up_no_other_thread(vocabulary):
    """Import and compile, with a thread beside it that wants to run every millisecond."""
    code = (
        "import json, pathlib, threading, time, port, numpy\n"
        "from guides import compiler\n"
        "gaps, over = [], threading.Event()\n"
        "def tick():\n"
        "    last = time.process_time()\n"
        "    while not over.is_set():\n"
        "        time.sleep(0.001)\n"
        "        now = time.process_time()\n"
        "        gaps.append(now - last)\n"
        "        last = now\n"
        "ticking = threading.Thread(target=tick)\n"
        "ticking.start()\n"
        f"info = pathlib.Path({str(vocabulary.info_file)!r})\n"
        "c = compiler.GuideCompiler(info, cache_bytes=1, threads=1)\n"
        "hard = json.dumps({'enum': [f'value {i}' for i in range(4000)]})\n"
        "c.compile(port.Guide('json_schema', hard)).result()\n"
        "over.set(), ticking.join(), c.close()\n"
        "print(max(gaps))\n"
    )
    assert any(float(in_engine_folder(code)) < STALL_AT_MOST_S for _ in range(3))


def never() -> bool:
    return False


@pytest.mark.parametrize("guide", [guide for guide, _ in GUIDES], ids=lambda guide: guide.kind)
def test_a_replayed_guide_is_where_the_first_one_was(guide, compiler, mask):
    compiled = compiler.compile(guide).result()
    random = np.random.default_rng(2)
    first, tokens = GuideState(compiled), []
    for _ in range(30):
        row = filled(mask, [first])[0].copy()
        replayed = GuideState(compiled)
        replayed.replay(tokens, never)
        assert (filled(mask, [replayed])[0] == row).all()
        tokens.append(int(random.choice(allowed_ids(row))))
        first.take(tokens[-1])
        if first.is_terminated:
            ended = GuideState(compiled)
            ended.replay(tokens, never)
            assert ended.is_terminated
            return


def test_a_token_that_the_guide_refuses_is_named_with_its_position(compiler, vocabulary):
    state = GuideState(compiler.compile(Guide("regex", "[ab]+")).result())
    a, c = vocabulary.table.index(b"a"), vocabulary.table.index(b"c")
    with pytest.raises(BadParameter, match=rf"token {c} at position 301 does not follow") as caught:
        state.replay([a] * 301 + [c, a], never)
    assert caught.value.param == "resume_from"


def test_a_replay_ends_when_its_sequence_does_or_when_it_takes_too_long(compiler, vocabulary):
    compiled = compiler.compile(Guide("regex", "[ab]+")).result()
    ids = [vocabulary.table.index(b"a")] * (3 * REPLAY_AT_ONCE)
    asked: list[None] = []

    def is_over() -> bool:
        asked.append(None)
        return len(asked) > 1

    GuideState(compiled).replay(ids, is_over)
    assert len(asked) == 2
    slow = GuideState(compiled)
    slow.spent_s = 1000.0
    with pytest.raises(GuideTooSlow):
        slow.replay(ids, never)


def in_engine_folder(code: str) -> str:
    """What a fresh interpreter prints."""
    folder = Path(__file__).parents[2] / "model_repository" / "engine" / "1"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
