"""The text of a Lark grammar -> the trees of its statements, by lark with lark's own grammar."""

from __future__ import annotations

import pkgutil
from functools import cache

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken

MAX_TOKENS = 20_000
MAX_DEPTH = 64  # of brackets
MAX_SHOWN = 20  # characters of the caller's text in a message
# What lark's loader accepts beyond lark.lark, and patterns that need linear time: lark.lark's need
# quadratic or exponential time for a string, an expression or empty lines without an end.
_CHANGED_SYNTAX = r"""
%extend statement: "%override" token -> override_rule | "%extend" (rule | token) -> extend
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
