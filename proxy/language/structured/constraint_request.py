"""A caller's request to constrain the answer, in any of the API's forms -> one Constraint.

`constraint_of` and `unenforced_by_tool` do the work that a caller's text can make expensive, so
`examiner` runs them in a sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from sys import getsizeof
from typing import Any

from typing_extensions import assert_never

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.domain.tools import Tool, ToolGrammar
from proxy.language.structured import checks, structural_tags
from proxy.language.structured.constraint_errors import TOOLS_FIELD, too_costly
from proxy.language.structured.escaped_grammar import IN_JSON
from proxy.language.structured.keywords import uncheckable, unenforced
from proxy.language.structured.recent import Recent, fingerprint, serialized
from proxy.language.structured.schema import SchemaLimits, checked, parsed, too_long
from proxy.language.structured.structural_tags import grammar_format, structural_tag

ANY_OBJECT = '{"type": "object"}'
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]()|/-]")
_CONTROL = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


class Form(Enum):
    """What the value of a ConstraintRequest is."""

    JSON_OBJECT = "nothing"
    SCHEMA = "a JSON Schema, or the text of one"
    REGEX = "a regular expression"
    CHOICE = "a list of texts"
    GRAMMAR = "the text of a grammar, in EBNF or Lark's syntax"
    INPUT = "syntax and definition of the grammar of a custom tool's input"
    STRUCTURAL_TAG = "a structural tag, or the text of one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintRequest:
    """`field`: its path in the request body. is_strict: the answer must conform to all of it."""

    field: str
    form: Form
    value: Any = None
    is_strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideLimits:
    """Bytes are those of UTF-8. schemas: for each schema, and for the text of a structural tag."""

    schemas: SchemaLimits = field(default_factory=SchemaLimits)
    grammar_bytes: int = 256_000
    regex_bytes: int = 16_384
    choices: int = 1_024
    choices_bytes: int = 65_536

    def check(self, request: ConstraintRequest) -> None:
        """Checks sizes that can be measured without parsing the value.

        Raises:
            InvalidRequest: the value is larger than allowed.
        """
        match request.form:
            case Form.REGEX:
                _check_count(request.field, _size(request.value), self.regex_bytes, "bytes")
            case Form.GRAMMAR:
                _check_count(request.field, _size(request.value), self.grammar_bytes, "bytes")
            case Form.INPUT:
                syntax, definition = request.value
                most = self.regex_bytes if syntax == "regex" else self.grammar_bytes
                _check_count(request.field, _size(definition), most, "bytes")
            case Form.CHOICE:
                _check_count(request.field, len(request.value), self.choices, "choices")
                size = sum(map(_size, request.value))
                _check_count(request.field, size, self.choices_bytes, "bytes")
            case Form.JSON_OBJECT | Form.SCHEMA | Form.STRUCTURAL_TAG:
                pass
            case _:
                assert_never(request.form)


def constraint_of(request: ConstraintRequest, limits: GuideLimits) -> Constraint:
    """The constraint for the engine, with the facts that later checks of the answer need.

    Raises:
        RequestError: a schema is invalid, or exceeds `limits`.
        InvalidRequest: another value is malformed, or exceeds `limits`.
    """
    limits.check(request)
    path, value = request.field, request.value
    match request.form:
        case Form.JSON_OBJECT:
            return Constraint(GuideKind.JSON_SCHEMA, ANY_OBJECT, path)
        case Form.SCHEMA:
            return _of_schema(request, limits.schemas)
        case Form.REGEX:
            return _of_regex(value, path)
        case Form.CHOICE:
            return _of_regex("|".join(map(_pattern_of, value)), path)
        case Form.GRAMMAR:
            return Constraint(GuideKind.GRAMMAR, _ebnf(value, path), path)
        case Form.INPUT:
            return _of_input(value, path)
        case Form.STRUCTURAL_TAG:
            return _of_tag(value, path, limits.schemas)
        case _:
            assert_never(request.form)


def unenforced_by_tool(
    schemas: Sequence[tuple[str, Any]], limits: SchemaLimits
) -> list[dict[str, Any]]:
    """Checks the schemas of tools.

    Args:
        schemas: for each tool the path in the request body, and the schema.

    Returns:
        For each schema, fields of its Tool.

    Raises:
        RequestError: one of them is invalid, or exceeds `limits`.
    """
    found = []
    for path, schema in schemas:
        parameters = json.loads(checked(schema, path, limits))
        changed = {} if parameters == schema else {"parameters": parameters}
        found.append({"unenforced": unenforced(schema), **changed})
    return found


def _of_input(value: list[str], path: str) -> Constraint:
    """Only the check: guides write the grammar in the escapes of the model's family."""
    syntax, definition = value
    try:
        grammar_format(ToolGrammar(syntax=syntax, definition=definition), IN_JSON)  # type: ignore[arg-type]
    except ValueError as error:
        raise InvalidRequest(
            f"Invalid value for '{path}': this grammar cannot be enforced: {error}", param=path
        ) from error
    return Constraint(GuideKind.GRAMMAR, field=path)


def _of_schema(request: ConstraintRequest, limits: SchemaLimits) -> Constraint:
    schema = parsed(request.value, request.field)
    return Constraint(
        GuideKind.JSON_SCHEMA,
        checked(schema, request.field, limits),
        request.field,
        request.is_strict,
        unenforced=unenforced(schema),
        unchecked=uncheckable(schema),
    )


def _of_tag(value: Any, path: str, limits: SchemaLimits) -> Constraint:
    found = structural_tag(structural_tags.checked(value, path, limits), path)
    _check_count(path, _size(found.text), limits.size_bytes, "bytes")
    return found


def _of_regex(pattern: str, path: str) -> Constraint:
    """xgrammar and the check of answers know different dialects of regular expressions."""
    try:
        checks.compiled_regex(pattern)
    except ValueError as error:
        return Constraint(GuideKind.REGEX, pattern, path, check_error=str(error))
    return Constraint(GuideKind.REGEX, pattern, path)


def _pattern_of(text: str) -> str:
    """A regular expression that matches this text only, and needs no group in an alternative."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    return "".join(_CONTROL.get(char, char) for char in escaped)


def _ebnf(text: str, path: str) -> str:
    from proxy.language.structured import lark  # only the sandbox needs its library

    try:
        return lark.as_ebnf(text)
    except lark.Untranslatable as error:
        raise InvalidRequest(
            f"Invalid value for '{path}': this Lark grammar cannot be translated to EBNF: {error}",
            param=path,
        ) from error


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _check_count(path: str, count: int, most: int, unit: str) -> None:
    if count > most:
        raise InvalidRequest(
            f"Invalid value for '{path}': it has {count} {unit}, more than {most}.", param=path
        )


RECENT_BYTES = 8_000_000
_OBJECTS = (Form.SCHEMA, Form.STRUCTURAL_TAG)
# `serialized` writes 5 bytes for a number or an empty string, JSON at least 2.
_SERIALIZED_PER_JSON = 3


class Examiner:
    """Examines constraints and tools before the request is sent, and remembers the results.

    Both methods raise RequestErrors that name the caller's field, and RateLimited as the sandbox.
    """

    def __init__(self, sandbox: Sandbox, limits: GuideLimits) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._constraints: Recent[bytes, Constraint] = Recent(
            RECENT_BYTES, lambda found: getsizeof(found.text)
        )
        self._unenforced: Recent[bytes, Any] = Recent(RECENT_BYTES, lambda one: len(str(one)))

    async def constraint(self, request: ConstraintRequest, caller: str) -> Constraint:
        """The constraint for the engine, with the facts that later checks need."""
        self._limits.check(request)
        if request.form is Form.JSON_OBJECT:
            return constraint_of(request, self._limits)
        if request.form in _OBJECTS:
            self._check_size(request)
        key = fingerprint([request.form.name, request.field, request.is_strict, request.value])
        found = self._constraints.get(key)
        if found is None:
            try:
                found = await self._sandbox.run(caller, constraint_of, request, self._limits)
            except TooCostly as error:
                is_schema = request.form is Form.SCHEMA
                raise too_costly(request.field, error, is_schema=is_schema) from error
            self._constraints.keep(key, found)
        return found

    async def tools(self, tools: Sequence[Tool], caller: str) -> tuple[Tool, ...]:
        """The tools, each with the keywords of its schema that a grammar does not enforce."""
        for at, tool in enumerate(tools):
            if (grammar := tool.grammar) is not None:
                path = f"tools[{at}].custom.format.grammar.definition"
                value = [grammar.syntax, grammar.definition]
                await self.constraint(
                    ConstraintRequest(field=path, form=Form.INPUT, value=value), caller
                )
        keys = {at: _key(tool) for at, tool in enumerate(tools) if tool.parameters is not None}
        known = {at: self._unenforced.get(key) for at, key in keys.items()}
        if new := [at for at, one in known.items() if one is None]:
            schemas = [(_path(at), tools[at].parameters) for at in new]
            try:
                found = await self._sandbox.run(
                    caller, unenforced_by_tool, schemas, self._limits.schemas
                )
            except TooCostly as error:
                path = schemas[0][0] if len(schemas) == 1 else TOOLS_FIELD
                raise too_costly(path, error, is_schema=True) from error
            for at, unenforced in zip(new, found, strict=True):
                known[at] = unenforced
                self._unenforced.keep(keys[at], unenforced)
        return tuple(replace(tool, **(known.get(at) or {})) for at, tool in enumerate(tools))

    def _check_size(self, request: ConstraintRequest) -> None:
        """Refuses a value that must be too large, without the cost of writing it as JSON."""
        most = self._limits.schemas.size_bytes
        if len(serialized(request.value)) > _SERIALIZED_PER_JSON * most:
            raise too_long(request.field, most)


def _key(tool: Tool) -> bytes:
    return fingerprint(dict(tool.parameters or {}))


def _path(at: int) -> str:
    return f"tools[{at}].function.parameters"
