"""Examines callers' constraints and tools: in a sandbox, and equal values only once.

Called by the adapters in api/. Agents send the same tools and schemas with every request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from sys import getsizeof

from proxy.domain.constraint import Constraint
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.domain.tools import Tool
from proxy.language.structured.constraint_errors import TOOLS_FIELD, too_costly
from proxy.language.structured.constraint_request import (
    ConstraintRequest,
    Form,
    GuideLimits,
    constraint_of,
    unenforced_by_tool,
)
from proxy.language.structured.recent import Recent, fingerprint, serialized
from proxy.language.structured.schema import too_long

RECENT_BYTES = 8_000_000
_OBJECTS = (Form.SCHEMA, Form.STRUCTURAL_TAG)
# `serialized` writes 5 bytes for a number or an empty string, JSON at least 2.
_SERIALIZED_PER_JSON = 3


class Examiner:
    """Examines constraints and tools before the request is sent, and remembers the results.

    Both methods raise InvalidRequest and InvalidSchema, which name the caller's field, and
    RateLimited as the sandbox does.
    """

    def __init__(self, sandbox: Sandbox, limits: GuideLimits) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._constraints: Recent[bytes, Constraint] = Recent(
            RECENT_BYTES, lambda found: getsizeof(found.text)
        )
        self._unenforced: Recent[bytes, tuple[str, ...]] = Recent(RECENT_BYTES)

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
        return tuple(replace(tool, unenforced=known.get(at) or ()) for at, tool in enumerate(tools))

    def _check_size(self, request: ConstraintRequest) -> None:
        """Refuses a value that must be too large, without the cost of writing it as JSON."""
        most = self._limits.schemas.size_bytes
        if len(serialized(request.value)) > _SERIALIZED_PER_JSON * most:
            raise too_long(request.field, most)


def _key(tool: Tool) -> bytes:
    return fingerprint(dict(tool.parameters or {}))


def _path(at: int) -> str:
    return f"tools[{at}].function.parameters"
