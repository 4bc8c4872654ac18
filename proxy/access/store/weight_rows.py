"""Histories of weights as rows of the tables. Used by `stored_decisions`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.store.stored_text import storable
from proxy.access.store.tables import DEPLOYMENT_WEIGHTS
from proxy.domain.weight_history import WeightHistory

NO_CHANGES = WeightHistory()


async def all_histories(connection: AsyncConnection) -> dict[str, WeightHistory]:
    rows = await connection.execute(select(DEPLOYMENT_WEIGHTS))
    return {row.model: _history(row.history) for row in rows}


async def history_of(connection: AsyncConnection, model: str) -> WeightHistory:
    if not storable(model):
        return NO_CHANGES
    chosen = select(DEPLOYMENT_WEIGHTS.c.history).where(DEPLOYMENT_WEIGHTS.c.model == model)
    stored = (await connection.execute(chosen)).scalar_one_or_none()
    return NO_CHANGES if stored is None else _history(stored)


async def replace_history(connection: AsyncConnection, model: str, history: WeightHistory) -> None:
    """In a transaction that has locked `meta`, so no other writes between the two statements."""
    table = DEPLOYMENT_WEIGHTS
    await connection.execute(delete(table).where(table.c.model == model))
    if not history.is_empty:
        row = {"current": history.current, "earlier": list(history.earlier)}
        await connection.execute(insert(table).values(model=model, history=row))


def _history(stored: dict[str, Any]) -> WeightHistory:
    return WeightHistory(current=stored["current"], earlier=tuple(stored["earlier"]))
