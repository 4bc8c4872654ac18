"""A grammar in Lark's syntax -> xgrammar's EBNF, which has the same texts.

What Lark's parsers do beyond the set of texts (priorities, aliases, inlining) has no meaning here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from lark import Token, Tree

from proxy.language.structured import lark_literals
from proxy.language.structured.lark_definitions import Definition, Grammar, parsed
from proxy.language.structured.lark_syntax import Node, Untranslatable, fault, shown, tokens

MAX_TEMPLATES_LENGTH = 256_000  # characters of all uses of templates
MAX_COUNT_DIGITS = 9
_IGNORED = "lark_ignored"
_GROUPS = ("alias", "expansion", "expansions")


def to_ebnf(text: str) -> str:
    """The grammar from its rule `start`, as the rule `root`.

    Raises:
        Untranslatable: it is invalid, too large, or means what EBNF cannot express.
    """
    return _Writer(parsed(text)).written()


@dataclass(frozen=True, slots=True)
class _Rule:
    """A definition under its name in EBNF. arguments: the texts for its parameters."""

    name: str
    definition: Definition
    arguments: tuple[str, ...]


class _Writer:
    """Writes the rules that `root` needs."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._rules: dict[tuple[str, tuple[str, ...]], _Rule] = {}
        self._unwritten: deque[_Rule] = deque()
        self._templates_length = 0

    def written(self) -> str:
        start = self.grammar.scopes[""].get("start")
        if start is None:
            raise Untranslatable("it does not have a rule 'start'")
        lines = [f"root ::= {self.name_of(start)}"]
        if self.grammar.ignored:
            lines[0] = f"root ::= {_IGNORED} {self.name_of(start)}"
            ignored = _Body(self, library="", is_terminal=True, arguments={})
            alternatives = " | ".join(map(ignored.text, self.grammar.ignored))
            lines.append(f"{_IGNORED} ::= ({alternatives})*")
        while self._unwritten:
            lines.append(self._line(self._unwritten.popleft()))
        return "\n".join(lines) + "\n"

    def name_of(self, definition: Definition, arguments: tuple[str, ...] = ()) -> str:
        """The name of its rule, which will be written."""
        key = definition.name, arguments
        if key not in self._rules:
            number = f".{len(self._rules)}" if arguments else ""
            self._rules[key] = _Rule(f"{definition.name}{number}", definition, arguments)
            self._unwritten.append(self._rules[key])
        return self._rules[key].name

    def _line(self, rule: _Rule) -> str:
        definition = rule.definition
        arguments = dict(zip(definition.parameters, rule.arguments, strict=True))
        bodies = [
            _Body(
                self,
                library=body.library,
                is_terminal=definition.is_terminal,
                arguments=arguments,
            ).text(body.tree)
            for body in definition.bodies
        ]
        line = f"{rule.name} ::= {' | '.join(bodies)}"
        self._templates_length += len(line) if arguments else 0
        if self._templates_length > MAX_TEMPLATES_LENGTH:
            raise Untranslatable(f"its templates need more than {MAX_TEMPLATES_LENGTH} characters")
        return line


@dataclass(frozen=True, slots=True)
class _Body:
    """Writes the body of a rule, where ignored texts may follow each terminal, or of a terminal."""

    writer: _Writer
    library: str
    is_terminal: bool
    arguments: Mapping[str, str]

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
            case Tree(data="template_usage", children=[Tree(children=[Token() as name]), *values]):
                return self._template(name, values)
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
        if name in self.arguments:
            return self.arguments[name]
        definition = self._definition(name)
        if definition.parameters:
            raise fault(f"{shown(name)} needs values for its parameters", name, self.library)
        text = self.writer.name_of(definition)
        return self._terminal(text) if definition.is_terminal else text

    def _template(self, name: Token, values: list[Node]) -> str:
        definition = self._definition(name)
        if len(definition.parameters) != len(values):
            said = f"{shown(name)} has {len(definition.parameters)} parameters, not {len(values)}"
            raise fault(said, name, self.library)
        return self.writer.name_of(definition, tuple(map(self.text, values)))

    def _definition(self, name: Token) -> Definition:
        found = self.writer.grammar.scopes[self.library].get(name.lstrip("?!"))
        if found is None or not found.bodies:
            raise fault(f"{shown(name)} is not defined", name, self.library)
        if self.is_terminal and not found.is_terminal:
            said = f"a terminal cannot contain the rule {shown(name)}"
            raise fault(said, name, self.library)
        return found

    def _literal(self, node: Node) -> str:
        first, *last = tokens(node)
        if last:
            return lark_literals.character_range(first, last[0], self.library)
        written = lark_literals.regex if first.type == "REGEXP" else lark_literals.string
        return written(first, self.library)

    def _terminal(self, text: str) -> str:
        is_followed = self.writer.grammar.ignored and not self.is_terminal
        return f"({text} {_IGNORED})" if is_followed else text
