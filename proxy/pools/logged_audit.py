"""The audit trail of a proxy without a store: lines of its log. Implements AuditTrail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

logger = structlog.get_logger(__name__)


class LoggedAudit:
    async def note(
        self, action: str, object: str, *, actor: str, details: Mapping[str, Any]
    ) -> None:
        logger.info("operator's change", action=action, object=object, actor=actor, **details)
