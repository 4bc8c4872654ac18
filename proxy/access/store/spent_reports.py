"""What was used since a date, for the limits of a month. Implements domain.usage.SpentSource."""

from __future__ import annotations

from datetime import datetime, timezone

from triton_openai.proxy.access.store.usage_reports import UsagePeriod, UsageReports
from triton_openai.proxy.domain.usage import Spent


class SpentReports:
    def __init__(self, reports: UsageReports) -> None:
        self._reports = reports

    async def spent(
        self, *, tenant: str, key_id: str | None, model: str | None, since: datetime
    ) -> Spent:
        """Raises StoreUnavailable."""
        today = datetime.now(timezone.utc).date()
        period = UsagePeriod(first=since.date(), last=today, tenant=tenant, key=key_id, model=model)
        found = await self._reports.report(period, ())
        return Spent(
            tokens=sum(row.prompt_tokens + row.output_tokens for row in found),
            cost=sum(row.cost for row in found),
        )
