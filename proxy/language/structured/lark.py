"""A grammar in Lark's syntax -> xgrammar's EBNF, which has the same texts.

What Lark's parsers do beyond the set of texts (priorities, aliases, inlining) has no meaning here.
Templates, `%override`, `%extend` and `%declare` are refused.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from lark import GrammarError, Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken
from lark.load_grammar import eval_escaping

from proxy.language.structured.escaped_grammar import Escapes, Inexpressible

MAX_TOKENS = 20_000
MAX_DEPTH = 64  # of brackets
MAX_SHOWN = 20  # characters of the caller's text in a message
# What lark's loader accepts beyond lark.lark, and patterns that need linear time: lark.lark's need
# quadratic or exponential time for a string, an expression or empty lines without an end.
_CHANGED_SYNTAX = r"""
%override RULE: /(![?]?|[?]!?)?_?[a-z][_a-z0-9]*/
%override STRING: /"(\\.|[^"\\\n])*"i?/
%override REGEXP: /\/(?!\/)(\\.|[^\/\\\n])+\/[imslux]*/
%override _NL: /\r?\n\s*/
%ignore /\\ *\n/
"""
_NESTING = {"LPAR": 1, "LSQB": 1, "LBRACE": 1, "RPAR": -1, "RSQB": -1, "RBRACE": -1}
Node = Tree[Token] | Token


class Untranslatable(ValueError):
    """The grammar is invalid, or EBNF cannot express it; the message says what and where."""


def fault(said: str, token: Token, library: str = "") -> Untranslatable:
    """library: the one whose text has the token, if it is not the caller's."""
    where = f"{library}.lark, " if library else ""
    return Untranslatable(f"{where}line {token.line}, column {token.column}: {said}")


def shown(text: str) -> str:
    return repr(text[:MAX_SHOWN] + "…" if len(text) > MAX_SHOWN else str(text))


def library_text(name: str) -> str:
    """A grammar that lark ships."""
    return (pkgutil.get_data("lark", f"grammars/{name}.lark") or b"").decode()


def statements(text: str) -> list[Tree[Token]]:
    """Raises Untranslatable: it is not a Lark grammar, or is too large."""
    parser = _parser().parse_interactive(text)
    depth, token = 0, None
    try:
        for count, token in enumerate(parser.iter_parse(), 1):
            depth += _NESTING.get(token.type, 0)
            if count > MAX_TOKENS:
                raise fault(f"it has more than {MAX_TOKENS} tokens", token)
            if depth > MAX_DEPTH:
                raise fault(f"it is nested more than {MAX_DEPTH} levels deep", token)
        grammar: Tree[Token] = parser.feed_eof(token)  # type: ignore[no-untyped-call]
    except UnexpectedCharacters as error:
        said = f"{shown(text[error.pos_in_stream :])} is not part of Lark's syntax"
        raise Untranslatable(f"line {error.line}, column {error.column}: {said}") from None
    except UnexpectedToken as error:
        raise fault(_unexpected(error.token, error.expected), error.token) from None
    return [child for child in grammar.children if isinstance(child, Tree)]


def tokens(node: Node) -> list[Token]:
    return [node] if isinstance(node, Token) else list(node.scan_values(lambda _: True))


@cache
def _parser() -> Lark:
    syntax = library_text("lark") + _CHANGED_SYNTAX
    return Lark(syntax, parser="lalr", maybe_placeholders=False)


def _unexpected(token: Token, expected: set[str]) -> str:
    if token.type == "$END":
        return "a definition ends too early"
    if expected == {"NUMBER"}:
        return f"{shown(token)} is not a number"
    return f"{shown(token)} may not stand here"


# Look-around, back references, groups with flags.
_BEYOND_REGULAR = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?!:)|\\[1-9bB])")
# A class that is not closed ends with the pattern: else each of its brackets would be tried.
_CLASS_OR_DOT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?\Z)|\.", re.DOTALL)


def string(literal: Token, library: str, escapes: Escapes | None) -> str:
    """`"…"`, and `"…"i` for either case."""
    text = _text(literal, library)
    if not literal.endswith("i"):
        return _quoted(text, escapes)
    return f"({' '.join(_either_case(char, escapes) for char in text)})" if text else '""'


def character_range(first: Token, last: Token, library: str, escapes: Escapes | None) -> str:
    """`"a".."z"`"""
    ends = [_text(end, library) for end in (first, last)]
    if any(len(end) != 1 for end in ends):
        raise fault("a range goes from one character to another", first, library)
    if escapes is not None:
        codes = ord(ends[0]), ord(ends[1])
        if codes[0] > codes[1]:
            raise fault("a range goes from a character to a later one", first, library)
        return _regex(escapes.one_of([codes]))
    return f"[{_in_class(ends[0])}-{_in_class(ends[1])}]"


def regex(literal: Token, library: str, escapes: Escapes | None) -> str:
    """`/…/flags`; Lark's dot is not a newline, unless the flag s is given."""
    pattern, flags = literal[1:].rsplit("/", 1)
    if set(flags) - set("su"):
        raise fault(f"the flags of {shown(literal)} are not supported", literal, library)
    if found := _BEYOND_REGULAR.search(pattern):
        raise fault(f"{found[0]!r} is not part of a regular language", literal, library)
    pattern = pattern.replace(r"\/", "/")
    if escapes is not None:
        try:
            return _regex(escapes.pattern(pattern, is_dot_all="s" in flags))
        except Inexpressible as error:
            raise fault(f"{shown(literal)}: {error}", literal, library) from None
    if "s" not in flags:
        pattern = _CLASS_OR_DOT.sub(lambda m: r"[^\n]" if m[0] == "." else m[0], pattern)
    return _regex(pattern)


def _regex(pattern: str) -> str:
    return f"Regex({json.dumps(pattern, ensure_ascii=False)})"


def _quoted(text: str, escapes: Escapes | None) -> str:
    return json.dumps(text if escapes is None else escapes.text(text), ensure_ascii=False)


def _text(literal: Token, library: str) -> str:
    try:
        text: str = eval_escaping(literal.removesuffix("i")[1:-1])  # type: ignore[no-untyped-call]
    except (GrammarError, ValueError):
        raise fault(f"{shown(literal)} is not a string", literal, library) from None
    return text.replace("\\\\", "\\")


def _either_case(char: str, escapes: Escapes | None) -> str:
    cases = {char.lower(), char.upper()}
    if len(cases) == 1:
        return _quoted(char, escapes)
    return f"({' | '.join(_quoted(case, escapes) for case in sorted(cases))})"


def _in_class(char: str) -> str:
    return f"\\{char}" if char in "\\]^-" else json.dumps(char, ensure_ascii=False)[1:-1]


LIBRARIES = ("common", "unicode")  # that lark ships
# Lark's own have a look-behind and a lazy repetition; these have the same texts without.
_REGULAR = {
    "common": r"""
ESCAPED_STRING: /"([^"\\\n]|\\[^\n])*"/
C_COMMENT: /\/\*([^*]|\*+[^*\/])*\*+\//
"""
}
_IGNORED = "lark_ignored"
_GROUPS = ("alias", "expansion", "expansions")
MAX_COUNT_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """name: in EBNF, where no other definition has it. library: where the names in its body are
    looked up, "" for the caller's grammar.
    """

    name: str
    library: str
    is_terminal: bool
    body: Node


Scope = dict[str, Definition]


def _imports(statement: Tree[Token]) -> Iterator[tuple[str, Definition]]:
    """The names here, and what they mean, of `%import library.NAME`,
    `%import library.NAME -> OTHER` and `%import library (NAME, …)`.
    """
    path, *listed = map(tokens, statement.children)
    words = [token for token in path if token.type != "DOT"]
    names = listed[0] if statement.data == "multi_import" else [words.pop()]
    library = ".".join(words)
    if library not in LIBRARIES or path[0].type == "DOT":
        raise fault(f"only {', '.join(LIBRARIES)} can be imported from", path[0])
    for name in names:
        if name not in _library(library):
            raise fault(f"{library} does not define {shown(name)}", name)
        local = listed[0][0] if listed and statement.data == "import" else name
        yield str(local), _library(library)[name]


@cache
def _library(name: str) -> Scope:
    found = [
        _definition(tree.children, name)
        for text in (library_text(name), _REGULAR.get(name, ""))
        for tree in statements(text)
        if tree.data in ("rule", "token")
    ]
    return {str(token): definition for token, definition in found}


def _definition(parts: list[Node], library: str) -> tuple[Token, Definition]:
    """`name.priority: body`"""
    (name,), parameters = tokens(parts[0]), tokens(parts[1])
    if parameters:
        raise fault("templates are not supported", name)
    name = name.update(value=name.lstrip("?!"))
    return name, Definition(
        name=_ebnf_name(name, library),
        library=library,
        is_terminal=name.type == "TOKEN",
        body=parts[-1],
    )


def _ebnf_name(name: str, library: str) -> str:
    """`root` is EBNF's start; names with a dot are not allowed in Lark."""
    if library:
        return f"{library}.{name}"
    return f"lark_{name}" if name == "root" or name.startswith("lark_") else str(name)


def to_ebnf(text: str, escapes: Escapes | None = None) -> str:
    """The grammar from its rule `start`, as the rule `root`. escapes: how its texts are written;
    None for as they are.

    Raises:
        Untranslatable: it is invalid, too large, or means what EBNF cannot express.
    """
    own: Scope = {}
    ignored: list[Node] = []
    found = statements(text)
    for tree in found:
        if tree.data in ("import", "multi_import"):
            own.update(_imports(tree))
    for tree in found:
        match tree.data:
            case "rule" | "token":
                name, definition = _definition(tree.children, "")
                if name in own:
                    raise fault(f"{shown(name)} is defined twice", name)
                own[str(name)] = definition
            case "ignore":
                ignored.append(tree.children[0])
            case "override_rule" | "declare":
                raise fault("%override and %declare are not supported", tokens(tree)[0])
    return _Writer(own, ignored, escapes).written()


class _Writer:
    """Writes the rules that `root` needs."""

    def __init__(self, own: Scope, ignored: list[Node], escapes: Escapes | None) -> None:
        self.own = own
        self.ignored = ignored
        self.escapes = escapes
        self._named: set[str] = set()
        self._unwritten: deque[Definition] = deque()

    def written(self) -> str:
        start = self.own.get("start")
        if start is None:
            raise Untranslatable("it does not have a rule 'start'")
        lines = [f"root ::= {self.name_of(start)}"]
        if self.ignored:
            lines[0] = f"root ::= {_IGNORED} {self.name_of(start)}"
            ignored = _Body(self, library="", is_terminal=True)
            lines.append(f"{_IGNORED} ::= ({' | '.join(map(ignored.text, self.ignored))})*")
        while self._unwritten:
            rule = self._unwritten.popleft()
            body = _Body(self, library=rule.library, is_terminal=rule.is_terminal)
            lines.append(f"{rule.name} ::= {body.text(rule.body)}")
        return "\n".join(lines) + "\n"

    def name_of(self, definition: Definition) -> str:
        """The name of its rule, which will be written."""
        if definition.name not in self._named:
            self._named.add(definition.name)
            self._unwritten.append(definition)
        return definition.name


@dataclass(frozen=True, slots=True)
class _Body:
    """Writes the body of a rule, where ignored texts may follow each terminal, or of a terminal."""

    writer: _Writer
    library: str
    is_terminal: bool

    def text(self, node: Node) -> str:
        match node:
            case Tree(data="expansions", children=alternatives):
                return " | ".join(map(self.text, alternatives))
            case Tree(data="alias", children=[expansion, _]):
                return self.text(expansion)
            case Tree(data="expansion", children=parts):
                return " ".join(self._grouped(part) for part in parts) or '""'
            case Tree(data="maybe", children=[optional]):
                return f"(({self.text(optional)})?)"
            case Tree(data="expr", children=[repeated, *operators]):
                return self._grouped(repeated, "expr") + self._times(operators)
            case Tree(data="template_usage"):
                raise fault("templates are not supported", tokens(node)[0])
            case Tree(data="name", children=[Token() as name]):
                return self._reference(name)
        return self._terminal(self._literal(node))

    def _grouped(self, node: Node, *more: str) -> str:
        is_group = isinstance(node, Tree) and node.data in _GROUPS + more
        return f"({self.text(node)})" if is_group else self.text(node)

    def _times(self, operators: list[Node]) -> str:
        """`*`, `+` or `?`; or how often, at least and at most."""
        first, last = tokens(operators[0])[0], tokens(operators[-1])[0]
        if first.type == "OP":
            return str(first)
        if max(len(first), len(last)) > MAX_COUNT_DIGITS or not 0 <= int(first) <= int(last):
            raise fault(f"{shown(f'~{first}..{last}')} is not a number of repetitions", first)
        return f"{{{int(first)},{int(last)}}}"

    def _reference(self, name: Token) -> str:
        scope = _library(self.library) if self.library else self.writer.own
        found = scope.get(name.lstrip("?!"))
        if found is None:
            raise fault(f"{shown(name)} is not defined", name, self.library)
        if self.is_terminal and not found.is_terminal:
            said = f"a terminal cannot contain the rule {shown(name)}"
            raise fault(said, name, self.library)
        text = self.writer.name_of(found)
        return self._terminal(text) if found.is_terminal else text

    def _literal(self, node: Node) -> str:
        first, *last = tokens(node)
        if last:
            return character_range(first, last[0], self.library, self.writer.escapes)
        written = regex if first.type == "REGEXP" else string
        return written(first, self.library, self.writer.escapes)

    def _terminal(self, text: str) -> str:
        is_followed = self.writer.ignored and not self.is_terminal
        return f"({text} {_IGNORED})" if is_followed else text


_LARK_LINE = re.compile(
    r"^[^\S\n]*(?:[?!]*\w+(?:\.-?\d+)?\s*:(?!:=)|%(?:import|ignore|declare|override|extend)\b)",
    re.MULTILINE,
)


def as_ebnf(text: str) -> str:
    """Raises Untranslatable: it is in Lark's syntax, and means what EBNF cannot say."""
    return to_ebnf(text) if "::=" not in text and _LARK_LINE.search(text) else text
