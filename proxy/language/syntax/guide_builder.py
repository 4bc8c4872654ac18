"""Builds guides in a sandbox, and those of equal orders only once. Called by `generation`."""

from __future__ import annotations

from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.language.structured.constraint_errors import TOOLS_FIELD, too_costly
from proxy.language.structured.recent import Recent, fingerprint
from proxy.language.syntax.guides import GuideOrder, Guides, guides_of

RECENT_BYTES = 32_000_000
_BYTES_PER_CHARACTER = 4  # at most

Key = tuple[object, ...]


class GuideBuilder:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._recent: Recent[Key, Guides] = Recent(
            RECENT_BYTES, lambda guides: _BYTES_PER_CHARACTER * guides.size
        )

    async def guides(self, order: GuideOrder, caller: str) -> Guides:
        """Like `guides_of`.

        Raises:
            InvalidRequest: also where building them takes too much time or memory.
            RateLimited: the caller has too many calls waiting for the sandbox.
        """
        if order.is_plain:
            return guides_of(order)
        key = _key(order)
        found = self._recent.get(key)
        if found is None:
            try:
                found = await self._sandbox.run(caller, guides_of, order)
            except TooCostly as error:
                field = TOOLS_FIELD if order.constraint is None else order.constraint.field
                raise too_costly(field, error, is_schema=False) from error
            self._recent.keep(key, found)
        return found


def _key(order: GuideOrder) -> Key:
    """Orders with equal keys have equal guides."""
    constraint = order.constraint
    parts = [
        [(one.name, one.is_strict, one.parameters and dict(one.parameters)) for one in order.tools],
        list(order.special_tokens.items()),
        constraint and (constraint.kind.value, constraint.text, constraint.field),
    ]
    return fingerprint(parts), order.choice, order.in_parallel, order.family, order.reasoning
