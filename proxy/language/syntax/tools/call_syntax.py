"""How a family writes tool calls, in the words of structural tags: what guides hold a model to.

Parsers read more than this: a CallSyntax is the one form that the models' chat templates have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.language.structured.tag_formats import Format, json_format, tag

# JSON Schema of a tool's arguments -> the format that they are written in
WriteArguments = Callable[[Any], Format]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSyntax:
    """`head` call (`separator` call)* `foot`; a call is `begin` name `middle` arguments `end`.

    can_hold: whether arguments of this schema can be written in the syntax. trigger: the first
    characters of a call, where text ends; all of `head` or of `begin` if it is empty. is_clear:
    ordinary text never contains the trigger. is_single: an answer has one call at most.
    """

    head: str = ""
    begin: str
    middle: str
    arguments: WriteArguments = json_format
    can_hold: Callable[[Any], bool] = lambda schema: True
    end: str
    separator: str = ""
    foot: str = ""
    trigger: str = ""
    is_clear: bool = True
    is_single: bool = False

    def calls_only(self, schemas: Mapping[str, Any], *, in_parallel: bool) -> Format:
        """At least one call, and no text. `schemas`: of the arguments, by the tool's name."""
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
            tags = [self.calls_only(schemas, in_parallel=in_parallel)]
        return {
            "type": "triggered_tags",
            "triggers": [self.trigger or self.head or self.begin],
            "tags": tags,
            "stop_after_first": self.is_single or not in_parallel,
        }

    def _tags(self, schemas: Mapping[str, Any]) -> list[Format]:
        return [
            tag(f"{self.begin}{name}{self.middle}", self.arguments(schema), self.end)
            for name, schema in schemas.items()
        ]


def object_list(head: str, foot: str, *, trigger: str = "", key: str = "arguments") -> CallSyntax:
    """Calls as JSON objects in a list. The head includes the begin of the first object, so that
    a list without a mark of its own still has a head that is longer than a bracket.
    """
    return CallSyntax(
        head=f'{head}{{"name": "',
        begin="",
        middle=f'", "{key}": ',
        end="}",
        separator=', {"name": "',
        foot=foot,
        trigger=trigger,
    )
