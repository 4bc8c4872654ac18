"""Tool guides: what a model can write under one, its parser reads as calls that conform."""

from __future__ import annotations

import json

import numpy as np
import pytest
from xgrammar import GrammarMatcher, allocate_token_bitmask

from build_engines.tokenizer_tables import guide_info
from grammars.compilation import as_ebnf
from guides.compiler import GuideCompiler
from guides.mask import GuideMask
from guides.state import GuideState
from port import Guide
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.tools import Tool
from proxy.language.syntax.families import RESPONSE_TEMPLATE
from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES
from proxy.language.syntax.guides import FALLBACK_FAMILY, GuideOrder, Guides, guides_of
from proxy.language.syntax.reasoning import ThinkParser
from proxy.language.syntax.special_tokens import InexpressibleTokens, with_token_ids
from tests.fixtures.guide_info import CLOSING, VOCAB_SIZE, walk
from tests.fixtures.tool_calls import OPTIONAL, TOOLS, assert_conform, read
from tests.unit.language.syntax.response_templates import TEMPLATES, named

WALKS = 12
# Those that a response template describes, where its guide is not its family's.
OWN_SECTIONS = named(r"<call>\s*<f=(?P<name>[^>]+)>", r"</f>\s*</call>")
NAMES = ("exaone", "granite_20b_fc", "cohere", "lfm2", "deepseek_v3", "muse_glimmer")
DESCRIBED = [
    pytest.param(f"{RESPONSE_TEMPLATE}{json.dumps(template)}", id=f"template of {name}")
    for name, template in [*((one, TEMPLATES[one]) for one in NAMES), ("sections", OWN_SECTIONS)]
]
REQUIRED, AUTO = True, False


def call_guide(family, tools, must_call: bool, *, in_parallel: bool, special_tokens=None) -> Guides:
    order = GuideOrder(
        constraint=None,
        tools=tuple(tools),
        must_call=must_call,
        in_parallel=in_parallel,
        family=family,
        reasoning=None,
        special_tokens=special_tokens or {},
    )
    return guides_of(order)


def answers(guide, compiler, vocabulary, seed: int = 0) -> list[str]:
    """What random walks under the guide end with."""
    compiled = compiler.compile(Guide(guide.answer.kind.value, guide.answer.text)).result()
    random, mask = np.random.default_rng(seed), GuideMask(VOCAB_SIZE, threads=1)
    walks = [walk(GuideState(compiled), mask, vocabulary, random) for _ in range(WALKS)]
    return [text.decode() for text in walks if text is not None]


@pytest.mark.parametrize("family", [*FAMILIES, *DESCRIBED])
def test_whatever_is_written_under_required_is_calls_that_conform(family, compiler, vocabulary):
    guide = call_guide(family, TOOLS, REQUIRED, in_parallel=True)
    texts = answers(guide, compiler, vocabulary)
    assert len(texts) >= WALKS // 4
    assert guide.family == family
    names = set()
    for text in texts:
        said, calls = read(guide.family, text)
        assert said.strip() == "", text
        assert calls, text
        assert_conform(calls)
        names |= {name for name, _ in calls}
    assert len(names) > 1


@pytest.mark.parametrize("family", [*FAMILIES, *DESCRIBED])
def test_not_in_parallel_is_exactly_one_call(family, compiler, vocabulary):
    guide = call_guide(family, TOOLS[1:], REQUIRED, in_parallel=False)
    for text in answers(guide, compiler, vocabulary):
        assert len(read(guide.family, text)[1]) == 1, text


def test_a_named_tool_is_the_only_one(compiler, vocabulary):
    guide = call_guide("hermes", TOOLS[1:2], REQUIRED, in_parallel=False)
    for text in answers(guide, compiler, vocabulary):
        assert [name for name, _ in read("hermes", text)[1]] == ["set"]


def accepts(guide, compiler, text: str) -> bool:
    """Whether the whole text can be an answer."""
    constraint = guide.answer if isinstance(guide, Guides) else guide
    compiled = compiler.compile(Guide(constraint.kind.value, constraint.text)).result()
    matcher = GrammarMatcher(compiled.grammar)
    return matcher.accept_string(text) and matcher.is_completed()


def test_with_auto_text_is_free_and_calls_conform_as_soon_as_they_begin(compiler):
    guide = call_guide("hermes", TOOLS, AUTO, in_parallel=True)
    call = '<tool_call>\n{"name": "set", "arguments": {"a": 1}}\n</tool_call>'
    assert accepts(guide, compiler, "Just text, with <tags> and {braces}.")
    assert accepts(guide, compiler, f"First this: {call}")
    assert accepts(guide, compiler, f"{call}\n{call} and so on")
    assert not accepts(guide, compiler, call.replace("1", "3"))
    assert not accepts(guide, compiler, call.replace("set", "unset"))


def test_with_auto_and_one_call_nothing_follows_it(compiler):
    guide = call_guide("hermes", TOOLS, AUTO, in_parallel=False)
    call = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
    assert accepts(guide, compiler, f"So: {call}")
    assert not accepts(guide, compiler, call + call)


PYTHONIC = {"pythonic", "llama4_pythonic"}


@pytest.mark.parametrize("family", [*sorted(set(FAMILIES) - PYTHONIC), *DESCRIBED])
def test_with_auto_a_call_as_required_writes_it_may_follow_text(family, compiler, vocabulary):
    required = call_guide(family, TOOLS, REQUIRED, in_parallel=False)
    auto = call_guide(family, TOOLS, AUTO, in_parallel=False)
    assert accepts(auto, compiler, "Only text.\n")
    for text in answers(required, compiler, vocabulary)[:4]:
        assert accepts(auto, compiler, f"Text first.\n{text}"), text


@pytest.mark.parametrize("family", sorted(PYTHONIC))
def test_a_bracket_in_free_text_begins_no_call(family):
    assert call_guide(family, TOOLS, AUTO, in_parallel=True).answer is None


UNSAYABLE = {
    "pythonic": {"type": "object", "properties": {"a-b": {"enum": [1]}}, "required": ["a-b"]},
    "qwen3_coder": {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^<.>$"}},
        "required": ["x"],
    },
    None: OPTIONAL,
}


@pytest.mark.parametrize("family", UNSAYABLE)
def test_what_a_syntax_cannot_say_is_a_list_of_objects(family, compiler, vocabulary):
    tools = [Tool(name="f", parameters=UNSAYABLE[family], is_strict=True)]
    guide = call_guide(family, tools, REQUIRED, in_parallel=True)
    assert guide.family == FALLBACK_FAMILY
    for text in answers(guide, compiler, vocabulary):
        assert {"name", "parameters"} == set(json.loads(text)[0])
    assert call_guide(family, tools, AUTO, in_parallel=True).answer is None


TYPED = (
    *("qwen3_coder", "qwen3_xml", "mimo", "glm45", "minimax_m2", "minimax_m3", "deepseek_v32"),
    *("kimi_k3", "cohere_xml"),
)


@pytest.mark.parametrize("family", TYPED)
@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ({"enum": ["x", None, 1]}, "x"),
        ({"enum": ["x", "y"], "const": "y"}, "y"),
        ({"const": None}, None),
    ],
)
def test_a_string_is_one_of_those_that_are_listed(family, listed, wanted, compiler, vocabulary):
    schema = {"type": "object", "properties": {"a": {"type": "string", **listed}}}
    tools = [Tool(name="f", parameters=schema | {"required": ["a"]}, is_strict=True)]
    guide = call_guide(family, tools, REQUIRED, in_parallel=False)
    assert guide.family == (FALLBACK_FAMILY if wanted is None else family)
    for text in answers(guide, compiler, vocabulary):
        [(_, arguments)] = read(guide.family, text, {"f": schema})[1]
        assert json.loads(arguments) == {"a": wanted}


@pytest.mark.parametrize("family", TYPED)
@pytest.mark.parametrize("kind", [{"$ref": "#/$defs/Code"}, {"allOf": [{"$ref": "#/$defs/Code"}]}])
def test_a_string_may_be_described_elsewhere(family, kind, compiler, vocabulary):
    schema = {
        "type": "object",
        "properties": {"a": kind},
        "required": ["a"],
        "$defs": {"Code": {"type": "string", "enum": ["12"]}},
    }
    tools = [Tool(name="f", parameters=schema, is_strict=True)]
    guide = call_guide(family, tools, REQUIRED, in_parallel=False)
    assert guide.family == family
    for text in answers(guide, compiler, vocabulary):
        [(_, arguments)] = read(family, text, {"f": schema})[1]
        assert json.loads(arguments) == {"a": "12"}


# reasoning first


@pytest.mark.parametrize("begin", ["", "<think>"])
def test_a_schema_begins_where_the_reasoning_ends(begin, compiler):
    constraint = Constraint(GuideKind.JSON_SCHEMA, '{"enum": [1]}')
    write = ThinkParser.before_reasoning if begin else ThinkParser.in_reasoning
    guide = write(constraint)
    assert accepts(guide, compiler, f"{begin}{{free}} text, 2 < 3</think>\n\n1")
    assert not accepts(guide, compiler, f"{begin}free text</think>2")
    assert not accepts(guide, compiler, f"{begin}free text")
    assert accepts(guide, compiler, "1") is bool(begin)


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        (GuideKind.JSON, "", "[1]"),
        (GuideKind.REGEX, "a+|b", "aa"),
        (GuideKind.GRAMMAR, 'root ::= "x" root | "y"', "xxy"),
        (
            GuideKind.STRUCTURAL_TAG,
            '{"type": "structural_tag", "format": {"type": "const_string", "value": "z"}}',
            "z",
        ),
    ],
)
def test_every_kind_of_constraint_may_follow_reasoning(kind, text, answer, compiler):
    guide = ThinkParser.in_reasoning(Constraint(kind, text))
    assert accepts(guide, compiler, f"thought</think>{answer}")
    assert not accepts(guide, compiler, f"thought</think>{answer}?")


def test_kimi_k3_s_calls_follow_an_empty_response(compiler):
    order = GuideOrder(
        constraint=None,
        tools=TOOLS[2:],
        must_call=True,
        in_parallel=True,
        family="kimi_k3",
        reasoning="kimi_k3",
        special_tokens={},
    )
    call = '<|open|>call tool="ping" index="1"<|sep|><|close|>call<|sep|>'
    answer = f"<|close|>response<|sep|><|open|>tools<|sep|>{call}<|close|>tools<|sep|>"
    thought = "hm<|close|>think<|sep|><|open|>response<|sep|>"
    guides = guides_of(order)
    assert accepts(guides, compiler, answer)
    assert accepts(guides.in_reasoning, compiler, thought + answer)
    assert not accepts(guides.in_reasoning, compiler, thought + "no" + answer)


# marks of the syntax that are special tokens

MARKS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "granite": ("<|tool_call|>",),
    "gemma4": ("<|tool_call>", "<tool_call|>"),
    "internlm": ("<|action_start|>", "<|action_end|>", "<|plugin|>"),
    "kimi_k2": (
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
        *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "deepseek_v31": (
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    ),
    "harmony": ("<|channel|>", "<|message|>", "<|constrain|>"),
    "kimi_k3": ("<|open|>", "<|close|>", "<|sep|>"),
    "minimax_m3": ("]<]minimax[>[",),
    "cohere": ("<|START_ACTION|>", "<|END_ACTION|>"),
    "qwen3_coder": ("<tool_call>", "</tool_call>"),
}


class SpecialVocabulary:
    """Bytes, an end token, and marks that are special tokens."""

    def __init__(self, folder, marks: tuple[str, ...]) -> None:
        self.end_id = 256
        self.special = {257 + at: mark for at, mark in enumerate(marks)}
        hidden = [bytes([value]) for value in range(256)] + [b""] * (1 + len(marks))
        self.info_file = folder / "guide.json"
        self.info_file.write_text(
            guide_info(hidden, vocab_size=len(hidden), end_ids=(self.end_id,), special=self.special)
        )
        self.table = [*hidden[:257], *(mark.encode() for mark in marks)]
        self.closing = np.array([value in [bytes([one]) for one in CLOSING] for value in hidden])


def special_walks(family: str, must_call: bool, folder, *, as_grammar=False) -> list[str]:
    vocabulary = SpecialVocabulary(folder, MARKS[family])
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=1)
    specials = {token: mark.encode() for token, mark in vocabulary.special.items()}
    constraint = call_guide(
        family, TOOLS[1:], must_call, in_parallel=True, special_tokens=specials
    ).answer
    guide = Guide(constraint.kind.value, constraint.text)
    if as_grammar:
        guide = Guide("ebnf_grammar", as_ebnf(guide.kind, guide.text))
    compiled = compiler.compile(guide).result()
    random, mask = np.random.default_rng(0), GuideMask(len(vocabulary.table), threads=1)
    walks = [walk(GuideState(compiled), mask, vocabulary, random) for _ in range(WALKS)]
    compiler.close()
    return [text.decode(errors="replace") for text in walks if text is not None]


@pytest.mark.parametrize("as_grammar", [False, True], ids=["as it is", "as vLLM gets it"])
@pytest.mark.parametrize("family", MARKS)
def test_marks_that_are_special_tokens_come_as_tokens(family, as_grammar, tmp_path):
    texts = special_walks(family, REQUIRED, tmp_path, as_grammar=as_grammar)
    assert texts
    for text in texts:
        said, calls = read(family, text)
        assert said.strip() == "", text
        assert calls, text
        assert_conform(calls)


@pytest.mark.parametrize("family", sorted(set(MARKS) - {"harmony"}))
def test_with_auto_a_special_token_begins_the_calls(family, tmp_path):
    for text in special_walks(family, AUTO, tmp_path):
        assert_conform(read(family, text)[1])


def test_free_text_cannot_go_on_from_half_of_a_beginning():
    guide = call_guide("harmony", TOOLS, AUTO, in_parallel=True)
    with pytest.raises(InexpressibleTokens, match="special token"):
        with_token_ids(guide.answer, {5: b"<|channel|>"})


def test_without_special_tokens_in_it_a_guide_stays_as_it_is():
    guide = call_guide("hermes", TOOLS, REQUIRED, in_parallel=True)
    assert with_token_ids(guide.answer, {5: b"<|im_end|>", 6: b""}) is guide.answer


def walked_masks(first, second, random, steps: int = 60) -> int:
    """Walks both grammars with the same random tokens; their masks are equal in every step."""
    matchers = [GrammarMatcher(first), GrammarMatcher(second)]
    masks = [allocate_token_bitmask(1, VOCAB_SIZE) for _ in matchers]
    for step in range(steps):
        if matchers[0].is_terminated():
            return step
        for matcher, mask in zip(matchers, masks, strict=True):
            matcher.fill_next_token_bitmask(mask, 0)
        assert (masks[0] == masks[1]).all(), step
        bits = np.unpackbits(np.asarray(masks[0]).view(np.uint8), bitorder="little")
        token = int(random.choice(np.flatnonzero(bits[:VOCAB_SIZE])))
        assert all(matcher.accept_token(token) for matcher in matchers)
    return steps


@pytest.mark.parametrize("must_call", [REQUIRED, AUTO], ids=["required", "auto"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_guide_as_a_grammar_of_its_own_allows_the_same_tokens(
    family, must_call, compiler, vocabulary
):
    """vLLM gets guides so."""
    guide = call_guide(family, TOOLS, must_call, in_parallel=True).answer
    if guide is None:
        assert family in PYTHONIC
        return
    wanted = Guide(guide.kind.value, guide.text)
    first = compiler.compile(wanted).result().grammar
    second = compiler._compiler.compile_grammar(as_ebnf(wanted.kind, wanted.text))
    random = np.random.default_rng(1)
    assert max(walked_masks(first, second, random) for _ in range(4)) > 2
