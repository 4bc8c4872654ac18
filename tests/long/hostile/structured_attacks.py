"""Guides: grammars in EBNF and Lark, regexes, choices, structural tags."""

from __future__ import annotations

import secrets
from typing import Any

from tests.long.hostile.attack import Attack, Send, Target
from tests.long.hostile.caller import CHAT, RENDER, Body, burst, post

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


def grammar(text: str, path: str = CHAT) -> Send:
    comment = "#" if "::=" in text else "//"

    def body(target: Target) -> dict[str, Any]:
        return on_engine(guided_grammar=f"{text}\n{comment} {fresh()}")(target)

    return post(body, path)


def regex(text: str) -> Send:
    return post(lambda target: on_engine(guided_regex=f"{text}(?:x{fresh()})?")(target))


def one(name: str, finding: int, send: Send, **more: Any) -> Attack:
    return Attack(name=name, finding=finding, send=send, **more)


GRAMMARS = [
    one("grammar: 20 KB of newlines", 1, grammar("\n" * 20_000 + "root")),
    one("grammar: 200 KB of blank lines", 1, grammar(" \n" * 100_000 + "root")),
    one(
        "render: a grammar of 20 KB of newlines", 1,
        grammar("\n" * 20_000 + "root", RENDER),
    ),
    one("lark: 5,000 open brackets", 1, grammar("start: /" + "[" * 5_000 + "/")),
    one("lark: 40,000 open brackets", 1, grammar("start: /" + "[" * 40_000 + "/")),
    one("lark: a string of 1 MB", 1, grammar('start: "' + "a" * 1_000_000 + '"')),
    one("lark: a string of 1 MB without an end", 1, grammar('start: "' + "\\a" * 500_000)),
    one(
        "lark: 4,900 imports", 1,
        grammar("".join(f"%import common.A{i}\n" for i in range(4_900)) + LARK_TAIL),
    ),
    one("lark: 20,000 ignored lines", 1, grammar('%ignore " "\n' * 20_000 + LARK_TAIL)),
    one("lark: 20,000 comments", 1, grammar("// x\n" * 20_000 + LARK_TAIL)),
    one("lark: parentheses 5,000 deep", 0, grammar("start: " + "(" * 5_000 + '"a"' + ")" * 5_000)),
    one("lark: repeats of repeats", 0, grammar('start: ((("a"~1..500)~1..500)~1..500)~1..500')),
    one(
        "lark: 10,000 rules", 0,
        grammar("start: r0\n" + "\n".join(f'r{i}: "a" | r{i + 1}' for i in range(10_000))),
    ),
    one("ebnf: 20 KB of newlines", 0, grammar("\n" * 20_000 + 'root ::= "a"')),
    one("ebnf: a string of 1 MB", 0, grammar('root ::= "' + "a" * 1_000_000 + '"')),
    one("ebnf: a class of 100,000 ranges", 0, grammar("root ::= [" + "a-z" * 100_000 + "]")),
    one("ebnf: parentheses 20,000 deep", 0, grammar("root ::= " + "(" * 20_000 + ")" * 20_000)),
    one("ebnf: repeats of repeats", 0, grammar('root ::= ((("a"{1,999}){1,999}){1,999})')),
    one("ebnf: a tower of doubling rules", 2, grammar(TOWER)),
    one(
        "ebnf: an ambiguous grammar in the decode loop", 2,
        post(on_engine(guided_grammar=AMBIGUOUS, max_tokens=300, ignore_eos=True,
                       logit_bias={"64": 100})),
        is_on_engine=True, wall_s=25, cpu_s=2,
    ),
    one(
        "ebnf: eight ambiguous grammars at once", 2,
        burst(on_engine(guided_grammar=AMBIGUOUS, max_tokens=200, min_tokens=150), count=8),
        is_on_engine=True, wall_s=25, cpu_s=2,
    ),
    one(
        "ebnf: ambiguous expressions in the decode loop", 2,
        post(on_engine(guided_grammar='root ::= e\ne ::= e e e | e e | "a" | "b" | ""',
                       max_tokens=200, min_tokens=150)),
        is_on_engine=True, wall_s=25, cpu_s=2,
    ),
]  # fmt: skip

REGEXES = [
    one("regex: (a{500}){500}", 3, regex("(a{500}){500}")),
    one("regex: ((a{99}){99}){99}", 3, regex("((a{99}){99}){99}")),
    one("regex: nested quantifiers", 1, regex("(" * 20 + "a" + "+)+" * 20)),
    one("regex: (a|a)*b", 1, regex("(a|a)*" * 200 + "b")),
    one("regex: optional tower", 0, regex("a?" * 2_000 + "a{2000}")),
    one("regex: a huge class", 1, regex("[" + "".join(map(chr, range(0x4E00, 0x9FFF))) + "]{50}")),
    one("regex: 6,000 escaped brackets", 1, regex("\\[" * 6_000)),
    one("regex: 5,000 open brackets", 1, regex("[" * 5_000)),
    one("regex: parentheses 10,000 deep", 0, regex("(" * 10_000 + "a" + ")" * 10_000)),
    one("regex: 20,000 alternatives", 0, regex("|".join(f"w{i}" for i in range(20_000)))),
    one("regex: a look-ahead chain", 0, regex("(?=a)" * 5_000 + "a")),
    one(
        "regex: a state explosion in the decode loop", 2,
        post(on_engine(guided_regex="(a|b)*a(a|b){18}c?", max_tokens=100, min_tokens=80)),
        is_on_engine=True, wall_s=25,
    ),
]  # fmt: skip

OTHERS = [
    one("choice: 50,000 texts", 0, post(on_engine(guided_choice=[f"w{i}" for i in range(50_000)]))),
    one("choice: 500 texts of 10 KB with a common head", 0,
        post(on_engine(guided_choice=["a" * 10_000 + str(i) for i in range(500)]))),
    one(
        "structural tag: 3,000 structures", 0,
        post(on_engine(response_format={
            "type": "structural_tag",
            "structures": [
                {"begin": f"<t{i}>", "schema": {"type": "object"}, "end": f"</t{i}>"}
                for i in range(3_000)
            ],
            "triggers": ["<t"],
        })),
    ),
    one(
        "structural tag: 20,000 triggers", 0,
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
    one(
        "structural tag: sequences 40 deep", 0,
        post(on_engine(response_format={"type": "structural_tag", "format": nested_tag(40)})),
    ),
    one(
        "guides: 64 slow ones at once from one caller", 5,
        burst(on_engine(guided_regex="(a{200}){200}"), count=64), wall_s=20, cpu_s=2,
    ),
]  # fmt: skip

ATTACKS = [*GRAMMARS, *REGEXES, *OTHERS, *TAGS]
