"""Usage as the limits see it: rows go to the writer, sums come from the reports."""

from __future__ import annotations

from datetime import datetime, timezone

from proxy.access.store.usage_reports import UsagePeriod, UsageReports
from proxy.access.store.usage_writer import UsageWriter
from proxy.domain.usage import Spent, UsageRow


class StoredUsage:
    """Implements domain.usage.UsageStore."""

    def __init__(self, writer: UsageWriter, reports: UsageReports) -> None:
        self._writer = writer
        self._reports = reports

    def add(self, row: UsageRow) -> None:
        self._writer.add(row)

    async def spent(
        self, *, tenant: str, key_id: str | None, model: str | None, since: datetime
    ) -> Spent:
        """Without the rows of the last second. Raises StoreUnavailable."""
        today = datetime.now(timezone.utc).date()
        period = UsagePeriod(first=since.date(), last=today, tenant=tenant, key=key_id, model=model)
        found = await self._reports.report(period, ())
        return Spent(
            tokens=sum(row.prompt_tokens + row.output_tokens for row in found),
            cost=sum(row.cost for row in found),
        )
