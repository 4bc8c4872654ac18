"""What the names in a Lark grammar stand for, imported ones included. Called by `lark`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from lark import Token, Tree

from proxy.language.structured.lark_syntax import (
    Node,
    fault,
    library_text,
    shown,
    statements,
    tokens,
)

LIBRARIES = ("common", "unicode")  # that lark ships
# Lark's own have a look-behind and a lazy repetition; these have the same texts without.
_REGULAR = {
    "common": r"""
%override ESCAPED_STRING: /"([^"\\\n]|\\[^\n])*"/
%override C_COMMENT: /\/\*([^*]|\*+[^*\/])*\*+\//
"""
}


@dataclass(frozen=True, slots=True)
class Body:
    """Alternatives. library: where the names in it are looked up, "" for the caller's grammar."""

    tree: Node
    library: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """name: in EBNF, where no other definition has it. bodies: none if it is only declared."""

    name: str
    is_terminal: bool
    parameters: tuple[str, ...] = ()
    bodies: tuple[Body, ...] = ()


Scope = dict[str, Definition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """scopes: by library, and "" for the caller's grammar, what each name means there."""

    scopes: Mapping[str, Scope]
    ignored: tuple[Node, ...]


def parsed(text: str) -> Grammar:
    """Raises Untranslatable: it is not a Lark grammar, or is too large."""
    found = statements(text)
    imports = [one for tree in found for one in _imports(tree)]
    own = {local: _library(library)[name] for library, name, local in imports}
    for tree in found:
        _define(tree, own, "")
    scopes = {name: _library(name) for name in LIBRARIES} | {"": own}
    ignored = tuple(tree.children[0] for tree in found if tree.data == "ignore")
    return Grammar(scopes=scopes, ignored=ignored)


def _imports(statement: Tree[Token]) -> Iterator[tuple[str, str, str]]:
    """The library, the name in it and the name here, of `%import library.NAME`,
    `%import library.NAME -> OTHER` and `%import library (NAME, …)`.
    """
    if statement.data not in ("import", "multi_import"):
        return
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
        yield library, str(name), str(local)


@cache
def _library(name: str) -> Scope:
    scope: Scope = {}
    for tree in statements(library_text(name)) + statements(_REGULAR.get(name, "")):
        _define(tree, scope, name)
    return scope


def _define(statement: Tree[Token], scope: Scope, library: str) -> None:
    """Adds to `scope` what the statement defines, if it defines anything."""
    match statement:
        case Tree(data="rule" | "token", children=parts):
            name, definition = _definition(parts, library)
            if name in scope:
                raise fault(f"{shown(name)} is defined twice", name)
            scope[str(name)] = definition
        case Tree(data="override_rule" | "extend" as kind, children=[Tree(children=parts)]):
            name, definition = _definition(parts, library)
            if name not in scope:
                raise fault(f"{shown(name)} is not defined", name)
            if kind == "extend":
                definition = _extended(scope[name], definition, name)
            scope[str(name)] = definition
        case Tree(data="declare"):
            for name in tokens(statement):
                scope[str(name)] = Definition(name=str(name), is_terminal=name.type == "TOKEN")


def _definition(parts: list[Node], library: str) -> tuple[Token, Definition]:
    """`name{parameters}.priority: body`"""
    (name,), parameters = tokens(parts[0]), tokens(parts[1])
    is_terminal = name.type == "TOKEN"
    if is_terminal and parameters:
        raise fault("a terminal cannot have parameters", name)
    name = name.update(value=name.lstrip("?!"))
    return name, Definition(
        name=_ebnf_name(name, library),
        is_terminal=is_terminal,
        parameters=tuple(map(str, parameters)),
        bodies=(Body(parts[-1], library),),
    )


def _extended(definition: Definition, more: Definition, name: Token) -> Definition:
    if definition.parameters != more.parameters:
        raise fault(f"{shown(name)} has other parameters", name)
    return replace(more, bodies=more.bodies + definition.bodies)


def _ebnf_name(name: str, library: str) -> str:
    """`root` is EBNF's start; names with a dot cannot stand in Lark."""
    if library:
        return f"{library}.{name}"
    return f"lark_{name}" if name == "root" or name.startswith("lark_") else str(name)
