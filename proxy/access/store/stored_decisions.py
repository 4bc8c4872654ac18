"""What operators decided, in the store. Implements domain.endpoints.Decisions.

Every process asks four times a second whether anything in the store has changed, by its generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy import delete, insert, select

from proxy.access.store.audit_log import AuditLog
from proxy.access.store.database import Database, storable
from proxy.access.store.tables import DEPLOYMENT_WEIGHTS, DRAINED_ENDPOINTS, META
from proxy.background import Periodic
from proxy.domain.endpoints import MOST_DRAINED, WeightHistory, Weights, too_many_drained
from proxy.domain.errors import InvalidRequest, StoreUnavailable, echoed

POLL_S = 0.25
NO_CHANGES = WeightHistory()

logger = structlog.get_logger(__name__)


class StoredDecisions:
    """`async with` reads them until the body ends. While the store is away, the last ones hold."""

    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database = database
        self._audit = audit
        self._rounds = Periodic(self._round, POLL_S)
        self._reading = asyncio.Lock()  # an older state must not replace a newer one
        self._generation: int | None = None
        self._histories: dict[str, WeightHistory] = {}
        self._answers = True
        self.drained: frozenset[str] = frozenset()

    def weights(self, model: str) -> Weights | None:
        return self._histories.get(model, NO_CHANGES).current

    async def __aenter__(self) -> StoredDecisions:
        await self._round()
        self._rounds.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rounds.stop()

    async def drain(self, address: str, *, actor: str) -> None:
        await self._set_drained(address, actor, "drain", is_drained=True)

    async def undrain(self, address: str, *, actor: str) -> None:
        await self._set_drained(address, actor, "undrain", is_drained=False)

    async def set_weights(self, model: str, weights: Weights, *, actor: str) -> None:
        _check(model, "model")
        await self._replace_history(model, actor, "weights", lambda before: before.changed(weights))

    async def roll_back(self, model: str, *, actor: str) -> Weights | None:
        after = await self._replace_history(
            model, actor, "rollback", lambda before: before.rolled_back(model)
        )
        return after.current

    async def _set_drained(self, address: str, actor: str, verb: str, *, is_drained: bool) -> None:
        _check(address, "address")
        table = DRAINED_ENDPOINTS
        async with self._audit.change(actor) as change:
            drained = (await change.connection.execute(select(table.c.address))).scalars().all()
            if (address in drained) != is_drained:
                if not is_drained:
                    gone = delete(table).where(table.c.address == address)
                    await change.connection.execute(gone)
                elif len(drained) >= MOST_DRAINED:
                    raise too_many_drained()
                else:
                    row = {"address": address, "at": change.at, "actor": actor}
                    await change.connection.execute(insert(table).values(row))
                views = {"before": {"drained": not is_drained}, "after": {"drained": is_drained}}
                change.record(f"endpoints.{verb}", f"endpoints/{address}", **views)
        await self._round()

    async def _replace_history(
        self, model: str, actor: str, verb: str, changed: Callable[[WeightHistory], WeightHistory]
    ) -> WeightHistory:
        table = DEPLOYMENT_WEIGHTS
        async with self._audit.change(actor) as change:
            before = NO_CHANGES
            if storable(model):
                chosen = select(table.c.history).where(table.c.model == model)
                stored = (await change.connection.execute(chosen)).scalar_one_or_none()
                before = NO_CHANGES if stored is None else _history(stored)
            after = changed(before)
            if after != before:
                await change.connection.execute(delete(table).where(table.c.model == model))
                if not after.is_empty:
                    row = {"current": after.current, "earlier": list(after.earlier)}
                    await change.connection.execute(insert(table).values(model=model, history=row))
                views = {"before": _view(before), "after": _view(after)}
                change.record(f"deployments.{verb}", f"deployments/{model}", **views)
        await self._round()
        return after

    async def _round(self) -> None:
        """Raises nothing, so a change that was kept does not fail when it cannot be read back."""
        try:
            await self._read()
        except StoreUnavailable as error:
            if self._answers:
                logger.error(
                    "decisions cannot be read, the last ones hold",
                    detail=error.detail or "",
                    advice="look at the database that STORE_URL names; drains and weights cannot "
                    "change until it answers",
                )
            self._answers = False
        except Exception:  # rows that this release cannot read; the last decisions hold
            logger.exception(
                "decisions cannot be understood",
                advice="run the same release in all proxies: a newer one may have written the "
                "store",
            )
        else:
            if not self._answers:
                logger.info("decisions can be read again")
            self._answers = True

    async def _read(self) -> None:
        async with self._reading, self._database.reading() as connection:
            generation = (await connection.execute(select(META.c.generation))).scalar_one()
            if generation == self._generation:
                return
            drained = (await connection.execute(select(DRAINED_ENDPOINTS.c.address))).scalars()
            rows = await connection.execute(select(DEPLOYMENT_WEIGHTS))
            histories = {row.model: _history(row.history) for row in rows}
            self._generation, self.drained = generation, frozenset(drained)
            self._histories = histories


def _history(stored: dict[str, Any]) -> WeightHistory:
    return WeightHistory(current=stored["current"], earlier=tuple(stored["earlier"]))


def _view(history: WeightHistory) -> dict[str, object]:
    """changes: how many of the earlier ones are kept, so that no two views in a row are equal."""
    return {"weights": history.current, "changes": len(history.earlier)}


def _check(name: str, param: str) -> None:
    if not storable(name):
        raise InvalidRequest(
            f"{param!r} has characters that cannot be stored: {echoed(name)}.", param=param
        )
