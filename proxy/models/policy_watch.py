"""Reads models.yaml again when it changes, or on SIGHUP. Started by `app`.

An invalid file is rejected as a whole: the old policy stays, one log line says why, and a gauge is
0 until the file is valid.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from socket import gethostname
from typing import Any

import structlog
from prometheus_client import Gauge

from build_engines.models_file import (
    BuiltEntry,
    EmbeddingEntry,
    ModelEntry,
    ModelsFile,
    ModelsFileError,
)
from proxy.domain.endpoints import AuditTrail
from proxy.domain.engine import NotReady
from proxy.domain.errors import StoreUnavailable, in_short
from proxy.domain.health import Concern
from proxy.models import policy
from proxy.models.readiness import Learn
from proxy.models.registry import Registry
from proxy.server_tools.http_tools import HttpToolRunner
from proxy.settings import Settings, environment

POLL_S = 0.5
MOST_NAMED = 50  # models and pools each, in an entry of the audit log
logger = structlog.get_logger()
Stamp = tuple[int, int, int] | None  # of a file: time of change in ns, size, inode; None: no file


REJECTED = Concern(
    message="models.yaml was rejected, and what it said before is in force", is_fatal=False
)


class PolicyWatch:
    """The models file of one process, as it is in force.

    current: what is in force. tools: gets the secrets of each new file. is_valid: 1 while the file
    that was read last is in force. learn: gets the models' cards before they are. audit: gets what
    each new file has changed. concerns: for readiness.
    """

    def __init__(
        self,
        settings: Settings,
        current: ModelsFile | None,
        registry: Registry,
        tools: HttpToolRunner,
        is_valid: Gauge,
        learn: Learn,
        audit: AuditTrail | None = None,
    ) -> None:
        self._settings = settings
        self._current = current
        self._registry = registry
        self._tools = tools
        self._is_valid = is_valid
        self._learn = learn
        self._audit = audit
        self._requested = asyncio.Event()
        self.concerns: tuple[Concern, ...] = ()
        self._first = self._stamp()  # now: the file may change before `run` begins
        is_valid.set(1)

    def read_again(self) -> None:
        """Reads the file at once, whether it has changed or not: for SIGHUP."""
        self._requested.set()

    async def run(self, poll_s: float = POLL_S) -> None:
        """Never ends. A file that changes is read when one poll has found it unchanged."""
        if self._settings.model_path is not None:
            return
        read = seen = self._first
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._requested.wait(), poll_s)
            before, seen = seen, await asyncio.to_thread(self._stamp)
            if self._requested.is_set() or (seen == before and seen != read):
                self._requested.clear()
                read = seen
                await self.reload()

    async def reload(self) -> bool:
        """Reads the file once; returns whether it is in force now."""
        try:
            found = await asyncio.to_thread(policy.models, self._settings, environment())
            for card in self._registry.cards_under(found.models):
                await self._learn(card)
            self._registry.replace_policy(found.models)
        except (ModelsFileError, NotReady) as error:
            logger.error(
                "models file rejected",
                reason=str(error),
                advice="repair models.yaml; the state from before holds until then",
            )
            self._is_valid.set(0)
            self.concerns = (REJECTED,)
            return False
        self._tools.replace_secrets(policy.secrets(found.models, environment()))
        before, self._current = self._current, found
        self._is_valid.set(1)
        self.concerns = ()
        stale = needing_build({} if before is None else before.models, found.models)
        logger.info("models file read", models=len(found.models), needs_build=stale)
        if self._audit is not None and (details := changes(before, found)):
            try:
                actor = f"proxy:{gethostname()}"
                await self._audit.note("models.reload", "models.yaml", actor=actor, details=details)
            except StoreUnavailable as error:
                logger.error(
                    "the reload of the models file is not in the audit log",
                    detail=error.detail or "",
                    advice="look at the database that STORE_URL names",
                )
        if found.pools != ({} if before is None else before.pools):
            logger.warning(
                "the pools of the models file change with a restart of the proxy only",
                advice="restart the proxy when it suits you",
            )
        return True

    def _stamp(self) -> Stamp:
        try:
            found = self._settings.models_file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def changes(before: ModelsFile | None, after: ModelsFile) -> dict[str, Any]:
    """The models and pools that a new file adds, removes, or changes; of these the options.

    Names only, no values, which may be secrets; the first MOST_NAMED.
    """
    found: dict[str, Any] = {}
    for kind in ("models", "pools"):
        old: Mapping[str, Any] = {} if before is None else getattr(before, kind)
        new: Mapping[str, Any] = getattr(after, kind)
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if names:
            shown = names[:MOST_NAMED]
            found[kind] = {in_short(one): _change(old.get(one), new.get(one)) for one in shown}
        if len(names) > MOST_NAMED:
            found[f"more_{kind}"] = len(names) - MOST_NAMED
    return found


def _change(before: Any, after: Any) -> str | list[str]:
    if before is None or after is None:
        return "added" if before is None else "removed"
    fields = dict.fromkeys((*type(before).model_fields, *type(after).model_fields))
    return [name for name in fields if getattr(before, name, None) != getattr(after, name, None)]


def needing_build(before: Mapping[str, ModelEntry], after: Mapping[str, ModelEntry]) -> list[str]:
    """The models with a change that takes effect only after `build` and a restart of Triton."""
    return [
        name
        for name, entry in after.items()
        if isinstance(entry, BuiltEntry | EmbeddingEntry)
        and _built_part(entry) != _built_part(before.get(name))
    ]


def _built_part(entry: ModelEntry | None) -> dict[str, object] | None:
    """The fields that `build` reads, and the proxy does not."""
    if entry is None:
        return None
    fields = set(type(entry).model_fields) - set(ModelEntry.model_fields)
    return {name: getattr(entry, name) for name in fields} | {"max": entry.sampling.max_tokens}
