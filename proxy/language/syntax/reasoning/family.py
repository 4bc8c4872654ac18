"""A family of reasoning syntax: one way of marking thoughts, which several models may share."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.language.syntax.reasoning.parser import ReasoningParser


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFamily:
    """The parser, whose marks are also what guides are made of; see `ReasoningParser.syntax`.

    template_marks: alternatives; a chat template that contains all marks of one of them belongs to
    the family.
    """

    parser_type: type[ReasoningParser]
    template_marks: tuple[tuple[str, ...], ...] = ()
