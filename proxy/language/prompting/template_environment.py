"""The sandboxed Jinja environment of chat templates, as transformers sets it up.

Called by `chat_template`.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


@lru_cache(maxsize=64)
def compiled(template: str) -> jinja2.Template:
    found = _environment().from_string(template)
    found.globals = dict(found.globals)  # each rendering would copy a ChainMap slowly
    return found


@lru_cache(maxsize=64)
def variables(template: str) -> frozenset[str]:
    """The names that the template reads, but neither it nor its environment sets; none if it is not
    a valid template.
    """
    environment = _environment()
    try:
        read = meta.find_undeclared_variables(environment.parse(template))
        return frozenset(read - environment.globals.keys())
    except (jinja2.TemplateError, RecursionError):
        return frozenset()  # rendering reports the mistake


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks text for training; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it an instance's

    def parse(self, parser: Parser) -> nodes.Node:
        """Variables that are set inside are not visible outside, as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """transformers' filter. Jinja's own filter escapes HTML, which would spoil prompts."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
