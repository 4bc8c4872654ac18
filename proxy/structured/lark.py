"""A grammar in Lark's syntax -> xgrammar's EBNF, which has the same texts.

What Lark's parsers do beyond the set of texts (priorities, aliases, inlining) has no bearing here.
"""

from __future__ import annotations

import ast
import json
import re
from collections import OrderedDict
from functools import cache, lru_cache

from triton_openai.proxy.structured.lark_tokens import Token, Untranslatable, statements

DEPTH_AT_MOST = 64
_IGNORED = "lark_ignored"
# Look-around, back references, groups with flags.
_BEYOND_REGULAR = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?!:)|\\[1-9bB])")
# A class that is not closed ends with the pattern: else each of its brackets would be tried.
_CLASS_OR_DOT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?\Z)|\.", re.DOTALL)
# Of Lark's own common.lark, with the same texts.
_COMMON = r"""
DIGIT: "0".."9"
HEXDIGIT: "a".."f" | "A".."F" | DIGIT
INT: DIGIT+
SIGNED_INT: ["+" | "-"] INT
DECIMAL: INT "." INT? | "." INT
_EXP: ("e" | "E") SIGNED_INT
FLOAT: INT _EXP | DECIMAL _EXP?
SIGNED_FLOAT: ["+" | "-"] FLOAT
NUMBER: FLOAT | INT
SIGNED_NUMBER: ["+" | "-"] NUMBER
ESCAPED_STRING: /"([^"\\\n]|\\[^\n])*"/
LCASE_LETTER: "a".."z"
UCASE_LETTER: "A".."Z"
LETTER: UCASE_LETTER | LCASE_LETTER
WORD: LETTER+
CNAME: ("_" | LETTER) ("_" | LETTER | DIGIT)*
WS_INLINE: /[ \t]/+
WS: /[ \t\f\r\n]/+
CR: /\r/
LF: /\n/
NEWLINE: (CR? LF)+
SH_COMMENT: /#[^\n]*/
CPP_COMMENT: /\/\/[^\n]*/
C_COMMENT: /\/\*([^*]|\*+[^*\/])*\*+\//
SQL_COMMENT: /--[^\n]*/
"""
Rules = dict[str, list[Token]]


def to_ebnf(text: str) -> str:
    """The grammar from its rule `start`, as the rule `root`.

    Raises:
        Untranslatable: it is wrong, or means what EBNF cannot say.
    """
    rules: Rules = {}
    ignored: list[list[Token]] = []
    for statement in statements(text):
        match statement[0]:
            case Token(kind="keyword", text="%ignore"):
                ignored.append(statement[1:])
            case Token(kind="keyword", text="%import"):
                rules |= _imported(statement[1:])
            case Token(kind="keyword", text=keyword):
                raise Untranslatable(f"{keyword} is not supported")
            case _:
                name, expansions = _definition(statement)
                rules[name] = expansions
    if "start" not in rules:
        raise Untranslatable("it has no rule 'start'")
    return _Writer(rules, ignored).written()


def _definition(statement: list[Token]) -> tuple[str, list[Token]]:
    """`name.priority: expansions`"""
    colon = next((at for at, token in enumerate(statement) if token.text == ":"), 0)
    head = [token.text for token in statement[:colon] if token.kind != "number"]
    if statement[0].kind != "name" or head[1:] not in ([], ["."]):
        shown = " ".join(token.text for token in statement[:8])
        raise Untranslatable(f"{shown!r} defines no plain rule")
    return head[0].lstrip("?!"), statement[colon + 1 :]


def _imported(names: list[Token]) -> Rules:
    """`common.NAME`, `common.NAME -> OTHER`, `common (NAME, …)`, with what they are made of."""
    common = _common()
    words = [token.text for token in names]
    if words[:1] != ["common"]:
        raise Untranslatable(f"%import {''.join(words)}: only 'common' can be imported from")
    wanted = [token.text for token in names[1:] if token.kind == "name"]
    if unknown := [
        name for name in wanted[:1] + wanted[1:] * ("->" not in words) if name not in common
    ]:
        raise Untranslatable(f"%import common.{unknown[0]}: there is no such terminal")
    if "->" in words:
        return common | {wanted[-1]: [Token("name", wanted[0])]}
    return common


@cache
def _common() -> Rules:
    return dict(map(_definition, statements(_COMMON)))


class _Writer:
    """Writes the rules that `root` needs. Ignored texts may follow each terminal of a rule."""

    def __init__(self, rules: Rules, ignored: list[list[Token]]) -> None:
        self._rules = rules
        self._ignored = ignored
        self._tokens: list[Token] = []
        self._at = 0
        self._depth = 0
        self._is_terminal = False
        self._needed: OrderedDict[str, None] = OrderedDict()  # and not yet written
        self._written: set[str] = set()

    def written(self) -> str:
        lines = ["root ::= start"]
        if self._ignored:
            lines[0] = f"root ::= {_IGNORED} start"
            self._is_terminal = True
            alternatives = [self._expansions_of(tokens) for tokens in self._ignored]
            lines.append(f"{_IGNORED} ::= ({' | '.join(alternatives)})*")
        self._needed["start"] = None
        while self._needed:
            name, _ = self._needed.popitem(last=False)
            self._written.add(name)
            self._is_terminal = name.isupper()
            lines.append(f"{_named(name)} ::= {self._expansions_of(self._rules[name])}")
        return "\n".join(lines) + "\n"

    def _expansions_of(self, tokens: list[Token]) -> str:
        self._tokens, self._at, self._depth = tokens, 0, 0
        text = self._expansions()
        if self._at < len(self._tokens):
            raise Untranslatable(f"{self._tokens[self._at].text!r} stands where nothing may follow")
        return text

    def _expansions(self) -> str:
        alternatives = [self._expansion()]
        while self._takes("|"):
            alternatives.append(self._expansion())
        return " | ".join(alternatives)

    def _expansion(self) -> str:
        parts = []
        while self._next() not in ("", "|", ")", "]", "->"):
            parts.append(self._repeated(self._atom()))
        if self._takes("->"):
            self._at += 1  # the alias
        return " ".join(parts) or '""'

    def _repeated(self, atom: str) -> str:
        if self._next() in ("*", "+", "?"):
            return atom + self._take().text
        if self._takes("~"):
            least = most = self._number()
            if self._takes(".."):
                most = self._number()
            return f"{atom}{{{least},{most}}}"
        return atom

    def _number(self) -> int:
        token = self._take()
        if token.kind != "number":
            raise Untranslatable(f"{token.text!r} is no number of repetitions")
        return int(token.text)

    def _atom(self) -> str:
        token = self._take()
        if token.text in ("(", "["):
            return self._group("?" if token.text == "[" else "")
        if token.kind == "name":
            return self._reference(token.text.lstrip("?!"))
        if token.kind == "string":
            return self._terminal(self._string_or_range(token))
        if token.kind == "regex":
            return self._terminal(_regex(token.text))
        raise Untranslatable(f"{token.text!r} is not supported here")

    def _group(self, times: str) -> str:
        self._depth += 1
        if self._depth > DEPTH_AT_MOST:
            raise Untranslatable(f"it is nested more than {DEPTH_AT_MOST} levels deep")
        text = self._expansions()
        if self._take().text not in (")", "]"):
            raise Untranslatable("a parenthesis is not closed")
        self._depth -= 1
        return f"({text}){times}" if not times else f"(({text}){times})"

    def _reference(self, name: str) -> str:
        if name not in self._rules:
            raise Untranslatable(f"{name!r} is not defined")
        if self._next() == "{":
            raise Untranslatable(f"{name!r} is a template")
        if name not in self._written:
            self._needed[name] = None
        return self._terminal(_named(name)) if name.isupper() else _named(name)

    def _terminal(self, text: str) -> str:
        return text if self._is_terminal or not self._ignored else f"({text} {_IGNORED})"

    def _string_or_range(self, token: Token) -> str:
        if not self._takes(".."):
            return _string(token.text)
        first, last = _text_of(token.text), _text_of(self._take().text)
        if len(first) != 1 or len(last) != 1:
            raise Untranslatable(f"a range goes from one character to another, not {first!r}")
        return f"[{_in_class(first)}-{_in_class(last)}]"

    def _next(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _takes(self, mark: str) -> bool:
        is_next = self._next() == mark
        self._at += is_next
        return is_next

    def _take(self) -> Token:
        if self._at >= len(self._tokens):
            raise Untranslatable("a definition ends too early")
        self._at += 1
        return self._tokens[self._at - 1]


def _named(name: str) -> str:
    """EBNF's root is ours."""
    return f"lark_{name}" if name in ("root", _IGNORED) else name


def _text_of(literal: str) -> str:
    try:
        return str(ast.literal_eval(literal.removesuffix("i")))
    except (ValueError, SyntaxError) as error:
        raise Untranslatable(f"{literal} is no string") from error


def _string(literal: str) -> str:
    text = _text_of(literal)
    if not literal.endswith("i"):
        return json.dumps(text, ensure_ascii=False)
    return " ".join(_either_case(char) for char in text) or '""'


@lru_cache(maxsize=256)
def _either_case(char: str) -> str:
    cases = {char.lower(), char.upper()}
    if len(cases) == 1:
        return json.dumps(char, ensure_ascii=False)
    return f"({' | '.join(json.dumps(case, ensure_ascii=False) for case in sorted(cases))})"


def _in_class(char: str) -> str:
    return f"\\{char}" if char in "\\]^-" else json.dumps(char, ensure_ascii=False)[1:-1]


def _regex(literal: str) -> str:
    """`/…/flags`; Lark's dot is no newline."""
    pattern, flags = literal[1:].rsplit("/", 1)
    if set(flags) - set("su"):
        raise Untranslatable(f"the flags of {literal} are not supported")
    if found := _BEYOND_REGULAR.search(pattern):
        raise Untranslatable(f"{found[0]!r} in {literal} is no regular language")
    pattern = pattern.replace(r"\/", "/")
    if "s" not in flags:
        pattern = _CLASS_OR_DOT.sub(lambda m: r"[^\n]" if m[0] == "." else m[0], pattern)
    return f"Regex({json.dumps(pattern, ensure_ascii=False)})"
