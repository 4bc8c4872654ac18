"""Guides: grammars in EBNF and Lark, regexes, choices, structural tags."""

from __future__ import annotations

import secrets
from typing import Any

from tests.long.hostile.attack import Attack, Target
from tests.long.hostile.caller import CHAT, RENDER, Body, Burst, burst, post

HI = [{"role": "user", "content": "Hello! Who are you?"}]
AMBIGUOUS = 'root ::= s\ns ::= s s | "a" | ""'
TOWER = "\n".join(f'r{i} ::= r{i + 1} r{i + 1} | "a"' for i in range(60)) + '\nr60 ::= "a" | ""'
LARK_TAIL = '\nstart: "a"\n'


def chat(**fields: Any) -> Body:
    def body(target: Target) -> dict[str, Any]:
        return {"model": target.steady, "messages": HI, "max_tokens": 4, **fields}

    return body


def on_engine(**fields: Any) -> Body:
    def body(target: Target) -> dict[str, Any]:
        return {"model": target.demo, "messages": HI, "max_tokens": 4, **fields}

    return body


def fresh() -> str:
    """A mark that no earlier request had: the server may keep what it has checked once."""
    return secrets.token_hex(4)


def grammar(text: str, path: str = CHAT) -> Burst:
    comment = "#" if "::=" in text else "//"

    def body(target: Target) -> dict[str, Any]:
        return on_engine(guided_grammar=f"{text}\n{comment} {fresh()}")(target)

    return post(body, path)


def regex(text: str) -> Burst:
    return post(lambda target: on_engine(guided_regex=f"{text}(?:x{fresh()})?")(target))


GRAMMARS = [
    Attack("grammar: 20 KB of newlines", grammar("\n" * 20_000 + "root")),
    Attack("grammar: 200 KB of blank lines", grammar(" \n" * 100_000 + "root")),
    Attack(
        "render: a grammar of 20 KB of newlines",
        grammar("\n" * 20_000 + "root", RENDER),
    ),
    Attack("lark: 5,000 open brackets", grammar("start: /" + "[" * 5_000 + "/")),
    Attack("lark: 40,000 open brackets", grammar("start: /" + "[" * 40_000 + "/")),
    Attack("lark: a string of 1 MB", grammar('start: "' + "a" * 1_000_000 + '"')),
    Attack("lark: a string of 1 MB without an end", grammar('start: "' + "\\a" * 500_000)),
    Attack(
        "lark: 4,900 imports",
        grammar("".join(f"%import common.A{i}\n" for i in range(4_900)) + LARK_TAIL),
    ),
    Attack("lark: 20,000 ignored lines", grammar('%ignore " "\n' * 20_000 + LARK_TAIL)),
    Attack("lark: 20,000 comments", grammar("// x\n" * 20_000 + LARK_TAIL)),
    Attack("lark: parentheses 5,000 deep", grammar("start: " + "(" * 5_000 + '"a"' + ")" * 5_000)),
    Attack("lark: repeats of repeats", grammar('start: ((("a"~1..500)~1..500)~1..500)~1..500')),
    Attack(
        "lark: 10,000 rules",
        grammar("start: r0\n" + "\n".join(f'r{i}: "a" | r{i + 1}' for i in range(10_000))),
    ),
    Attack("ebnf: 20 KB of newlines", grammar("\n" * 20_000 + 'root ::= "a"')),
    Attack("ebnf: a string of 1 MB", grammar('root ::= "' + "a" * 1_000_000 + '"')),
    Attack("ebnf: a class of 100,000 ranges", grammar("root ::= [" + "a-z" * 100_000 + "]")),
    Attack("ebnf: parentheses 20,000 deep", grammar("root ::= " + "(" * 20_000 + ")" * 20_000)),
    Attack("ebnf: repeats of repeats", grammar('root ::= ((("a"{1,999}){1,999}){1,999})')),
    Attack("ebnf: a tower of doubling rules", grammar(TOWER)),
    Attack(
        "ebnf: an ambiguous grammar in the decode loop",
        post(on_engine(guided_grammar=AMBIGUOUS, max_tokens=300, ignore_eos=True,
                       logit_bias={"64": 100})),
        is_on_engine=True, wall_s=25, cpu_s=2,
    ),
    Attack(
        "ebnf: eight ambiguous grammars at once",
        burst(on_engine(guided_grammar=AMBIGUOUS, max_tokens=200, min_tokens=150), count=8),
        is_on_engine=True, wall_s=25, cpu_s=2,
    ),
    Attack(
        "ebnf: ambiguous expressions in the decode loop",
        post(on_engine(guided_grammar='root ::= e\ne ::= e e e | e e | "a" | "b" | ""',
                       max_tokens=200, min_tokens=150)),
        is_on_engine=True, wall_s=25, cpu_s=2,
    ),
]  # fmt: skip

REGEXES = [
    Attack("regex: (a{500}){500}", regex("(a{500}){500}")),
    Attack("regex: ((a{99}){99}){99}", regex("((a{99}){99}){99}")),
    Attack("regex: nested quantifiers", regex("(" * 20 + "a" + "+)+" * 20)),
    Attack("regex: (a|a)*b", regex("(a|a)*" * 200 + "b")),
    Attack("regex: optional tower", regex("a?" * 2_000 + "a{2000}")),
    Attack("regex: a huge class", regex("[" + "".join(map(chr, range(0x4E00, 0x9FFF))) + "]{50}")),
    Attack("regex: 6,000 escaped brackets", regex("\\[" * 6_000)),
    Attack("regex: 5,000 open brackets", regex("[" * 5_000)),
    Attack("regex: parentheses 10,000 deep", regex("(" * 10_000 + "a" + ")" * 10_000)),
    Attack("regex: 20,000 alternatives", regex("|".join(f"w{i}" for i in range(20_000)))),
    Attack("regex: a look-ahead chain", regex("(?=a)" * 5_000 + "a")),
    Attack(
        "regex: a state explosion in the decode loop",
        post(on_engine(guided_regex="(a|b)*a(a|b){18}c?", max_tokens=100, min_tokens=80)),
        is_on_engine=True, wall_s=25,
    ),
]  # fmt: skip

OTHERS = [
    Attack("choice: 50,000 texts", post(on_engine(guided_choice=[f"w{i}" for i in range(50_000)]))),
    Attack("choice: 500 texts of 10 KB with a common head",
        post(on_engine(guided_choice=["a" * 10_000 + str(i) for i in range(500)]))),
    Attack(
        "structural tag: 3,000 structures",
        post(on_engine(response_format={
            "type": "structural_tag",
            "structures": [
                {"begin": f"<t{i}>", "schema": {"type": "object"}, "end": f"</t{i}>"}
                for i in range(3_000)
            ],
            "triggers": ["<t"],
        })),
    ),
    Attack(
        "structural tag: 20,000 triggers",
        post(on_engine(response_format={
            "type": "structural_tag",
            "structures": [{"begin": "<t>", "schema": {}, "end": "</t>"}],
            "triggers": ["<" + "t" * (i % 50) for i in range(20_000)],
        })),
    ),
]  # fmt: skip


def nested_tag(depth: int) -> dict[str, Any]:
    tag: dict[str, Any] = {"type": "any_text"}
    for _ in range(depth):
        tag = {"type": "sequence", "elements": [tag, {"type": "const_string", "value": "a"}]}
    return tag


TAGS = [
    Attack(
        "structural tag: sequences 40 deep",
        post(on_engine(response_format={"type": "structural_tag", "format": nested_tag(40)})),
    ),
    Attack(
        "guides: 64 slow ones at once from one caller",
        burst(on_engine(guided_regex="(a{200}){200}"), count=64), wall_s=20, cpu_s=2,
    ),
]  # fmt: skip

ATTACKS = [*GRAMMARS, *REGEXES, *OTHERS, *TAGS]
