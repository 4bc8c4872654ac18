"""Examines what callers send to constrain answers: in a sandbox, and once for equal values.

Called by the adapters in api/. Agents send the same tools and schemas with every request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from sys import getsizeof

from triton_openai.proxy.domain.constraint import Constraint
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest, InvalidSchema
from triton_openai.proxy.domain.sandbox import Sandbox, TooCostly
from triton_openai.proxy.domain.tools import Tool
from triton_openai.proxy.structured.asked import Asked, Form, GuideLimits, constraint, tool_facts
from triton_openai.proxy.structured.blame import TOOLS
from triton_openai.proxy.structured.recent import Recent, fingerprint, serialized
from triton_openai.proxy.structured.schema import too_long

RECENT_BYTES = 8_000_000
_OBJECTS = (Form.SCHEMA, Form.STRUCTURAL_TAG)
# `serialized` needs 5 bytes for a number or an empty string, of which JSON needs 2 at least.
_SERIALIZED_PER_JSON = 3


class Examiner:
    """Both verbs raise InvalidRequest and InvalidSchema with the caller's field, and RateLimited
    as the sandbox does.
    """

    def __init__(self, sandbox: Sandbox, limits: GuideLimits) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._constraints: Recent[bytes, Constraint] = Recent(RECENT_BYTES)
        self._unenforced: Recent[bytes, tuple[str, ...]] = Recent(RECENT_BYTES)

    async def constraint(self, asked: Asked, caller: str) -> Constraint:
        """What the engine is given, and what is known of it."""
        self._limits.check(asked)
        if asked.form is Form.JSON_OBJECT:
            return constraint(asked, self._limits)
        most = self._limits.schemas.size_bytes
        if asked.form in _OBJECTS and len(serialized(asked.value)) > _SERIALIZED_PER_JSON * most:
            raise too_long(asked.field, most)
        key = fingerprint([asked.form.name, asked.field, asked.is_strict, asked.value])
        found = self._constraints.get(key)
        if found is None:
            try:
                found = await self._sandbox.run(caller, constraint, asked, self._limits)
            except TooCostly as error:
                raise too_costly(asked.field, error, is_schema=asked.form is Form.SCHEMA) from error
            self._constraints.put(key, found, getsizeof(found.text))
        return found

    async def tools(self, tools: Sequence[Tool], caller: str) -> tuple[Tool, ...]:
        """The tools with what is known of their parameters."""
        keys = {at: _key(tool) for at, tool in enumerate(tools) if tool.parameters is not None}
        known = {at: self._unenforced.get(key) for at, key in keys.items()}
        if new := [at for at, found in known.items() if found is None]:
            schemas = [(_path(at), tools[at].parameters) for at in new]
            try:
                facts = await self._sandbox.run(caller, tool_facts, schemas, self._limits.schemas)
            except TooCostly as error:
                path = schemas[0][0] if len(schemas) == 1 else TOOLS
                raise too_costly(path, error, is_schema=True) from error
            for at, unenforced in zip(new, facts, strict=True):
                known[at] = unenforced
                self._unenforced.put(keys[at], unenforced)
        return tuple(replace(tool, unenforced=known.get(at) or ()) for at, tool in enumerate(tools))


def too_costly(field: str, error: TooCostly, *, is_schema: bool) -> InvalidRequest | InvalidSchema:
    """The caller's mistake, as far as a server can tell."""
    reason = f"{error}; make it smaller or simpler."
    if is_schema:
        return InvalidSchema(f"Invalid schema for '{field}': {reason}", param=field)
    return InvalidRequest(
        f"Invalid value for '{field}': {reason}", code=ErrorCode.INVALID_PARAMETER, param=field
    )


def _key(tool: Tool) -> bytes:
    return fingerprint(dict(tool.parameters or {}))


def _path(at: int) -> str:
    return f"tools[{at}].function.parameters"
