"""How a family writes tool calls, in the words of structural tags: what guides hold a model to.

Parsers read more than this: a CallSyntax is the one form that the models' chat templates have.
`argument_list` is for syntaxes that write a tool's arguments one after another, not as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from proxy.domain.tools import ToolCall, ToolGrammar
from proxy.language.structured.escaped_grammar import IN_JSON, Escapes
from proxy.language.structured.schema import DEFINITIONS, schemas
from proxy.language.structured.structural_tags import (
    Format,
    const_string,
    either,
    grammar_format,
    json_format,
    optional,
    sequence,
    tag,
)

# JSON Schema of a tool's arguments -> the format that they are written in
WriteArguments = Callable[[Any], Format]
# A custom tool is to the model a function with one argument.
INPUT = "input"
INPUT_SCHEMA = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSyntax:
    """How arguments that are one string are written. escapes: how its characters are."""

    begin: str
    end: str
    escapes: Escapes = IN_JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSyntax:
    """`head` call (`separator` call)* `foot`; a call is `begin` name `middle` arguments `end`.

    can_hold: whether arguments of this schema can be written in the syntax. trigger: the first
    characters of a call, where text ends; all of `head` or of `begin` if it is empty. is_clear:
    ordinary text never contains the trigger. is_single: an answer has one call at most. lead: what
    calls without text before them begin with. before_name: what the model writes between `begin`
    and the name. after_name: between `middle` and the arguments. input: the arguments of a custom
    tool that has a grammar. write: arguments as text, where they are not JSON.
    """

    lead: str = ""
    head: str = ""
    begin: str
    before_name: tuple[Format, ...] = ()
    middle: str
    after_name: tuple[Format, ...] = ()
    arguments: WriteArguments = json_format
    input: InputSyntax = InputSyntax(begin=f'{{"{INPUT}": "', end='"}')
    can_hold: Callable[[Any], bool] = lambda schema: True
    end: str
    separator: str = ""
    foot: str = ""
    trigger: str = ""
    is_clear: bool = True
    is_single: bool = False
    write: Callable[[Mapping[str, Any]], str] | None = None

    def written(self, calls: Iterable[ToolCall]) -> str | None:
        """Earlier calls as the model would have written them; None if that is not known, such as
        the numbers of calls.
        """
        write = self.write
        if write is None and self.arguments is json_format:
            write = partial(json.dumps, ensure_ascii=False)
        if write is None or self.before_name or self.after_name:
            return None
        each = (
            f"{self.begin}{call.name}{self.middle}{write(json.loads(call.arguments))}{self.end}"
            for call in calls
        )
        return f"{self.head}{self.separator.join(each)}{self.foot}"

    def calls_only(self, schemas: Mapping[str, Any], *, in_parallel: bool) -> Format:
        """At least one call, and no text. `schemas`: of the arguments, by the tool's name; of a
        custom tool, its grammar.
        """
        calls = self._section(schemas, in_parallel=in_parallel)
        return sequence(const_string(self.lead), calls) if self.lead else calls

    def _section(self, schemas: Mapping[str, Any], *, in_parallel: bool) -> Format:
        calls = {
            "type": "tags_with_separator",
            "tags": self._tags(schemas),
            "separator": self.separator,
            "at_least_one": True,
            "stop_after_first": self.is_single or not in_parallel,
        }
        return tag(self.head, calls, self.foot) if self.head else calls

    def calls_in_text(self, schemas: Mapping[str, Any], *, in_parallel: bool) -> Format:
        """Free text, which may contain calls."""
        tags = self._tags(schemas)
        if self.head:
            tags = [self._section(schemas, in_parallel=in_parallel)]
        return {
            "type": "triggered_tags",
            "triggers": [self.trigger or self.head or self.begin],
            "tags": tags,
            "stop_after_first": self.is_single or not in_parallel,
        }

    def _tags(self, schemas: Mapping[str, Any]) -> list[Format]:
        return [self._tag(name, self._arguments(schema)) for name, schema in schemas.items()]

    def _arguments(self, schema: Any) -> Format:
        """Free up to the call's end where the syntax cannot be held to the schema."""
        if isinstance(schema, ToolGrammar):
            content = grammar_format(schema, self.input.escapes)
            found = tag(self.input.begin, content, self.input.end)
        elif self.can_hold(schema):
            found = self.arguments(schema)
        else:
            found = {"type": "any_text", "excludes": [self.end]}
        return sequence(*self.after_name, found) if self.after_name else found

    def _tag(self, name: str, arguments: Format) -> Format:
        if not self.before_name:
            return tag(f"{self.begin}{name}{self.middle}", arguments, self.end)
        named = const_string(f"{name}{self.middle}")
        return tag(self.begin, sequence(*self.before_name, named, arguments), self.end)


_FIRST_TAG = re.compile(r"<[^<>]*>|")


def written_as(
    call: str, calls: str = "…", *, separator: str = "", is_single: bool = False
) -> CallSyntax:
    """The syntax of calls that are written so, from their first tag on. The marks `…` stand for a
    call's name and its arguments, and in `calls` for all calls.
    """
    head, foot = calls.split("…")
    begin, middle, end = call.split("…")
    first = _FIRST_TAG.match(head or begin)
    return CallSyntax(
        head=head,
        begin=begin,
        middle=middle,
        end=end,
        separator=separator,
        foot=foot,
        trigger=first[0] if first else "",
        is_single=is_single,
    )


# (name of an argument, schema of its value) -> how it is written
WriteArgument = Callable[[str, Any], Format]
# A list may begin with any optional argument, followed by any that come after it: the guide grows
# with the square of their number.
OPTIONAL_AT_MOST = 64
_PLAIN_KEYWORDS = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "$schema",
    *DEFINITIONS,
}


def argument_list(schema: Any, write: WriteArgument, separator: str) -> Format:
    """The required arguments first, each group in the order of the schema."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = [name for name in properties if name in schema.get("required", ())]
    others = [name for name in properties if name not in required]
    one = {name: write(name, with_definitions(value, schema)) for name, value in properties.items()}

    def following(name: str) -> Format:
        return sequence(const_string(separator), one[name])

    def optionals(names: list[str]) -> list[Format]:
        return [optional(following(name)) for name in names]

    if required:
        first, *more = required
        return sequence(one[first], *map(following, more), *optionals(others))
    starts = [sequence(one[name], *optionals(others[at + 1 :])) for at, name in enumerate(others)]
    return either(const_string(""), *starts)


def has_independent_arguments(schema: Any) -> bool:
    """Whether the schema lists its properties, few of them optional, and has no rule that connects
    one property with another: `argument_list` can enforce nothing else.
    """
    optional_names = set(schema.get("properties", ())) - set(schema.get("required", ()))
    references = [one["$ref"] for one in schemas(schema) if "$ref" in one]
    return (
        set(schema) <= _PLAIN_KEYWORDS
        and len(optional_names) <= OPTIONAL_AT_MOST
        and set(schema.get("required", ())) <= set(schema.get("properties", ()))
        and all(str(one).startswith(("#/$defs/", "#/definitions/")) for one in references)
    )


def with_definitions(schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema with the definitions of `root`, which its references point into."""
    shared = {name: root[name] for name in DEFINITIONS if name in root}
    return {**schema, **shared} if isinstance(schema, Mapping) else schema
