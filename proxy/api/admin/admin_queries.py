"""Query parameters of the administration's GET routes, checked as bodies are."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from proxy.access.store.usage_reports import Grouping, UsagePeriod
from proxy.api.admin.admin_bodies import PLAIN, TenantName
from proxy.api.http.typed_route import QueryParameters
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.identity import Caller

Text = Annotated[str, StringConstraints(pattern=PLAIN, max_length=256)]
PageSize = Annotated[int, Field(ge=1, le=1000)]
GROUPS = "(day|tenant|key|model)"
OWN_GROUPS = "(day|model)"


class TenantsQuery(QueryParameters):
    after: Text | None = Field(None, description="The last name of the page before.")
    limit: PageSize = Field(100, description="How many at most.")


class KeysQuery(QueryParameters):
    tenant: TenantName | None = Field(None, description="Only this tenant's keys.")
    after: Text | None = Field(None, description="The last id of the page before.")
    limit: PageSize = Field(100, description="How many at most.")


class AuditQuery(QueryParameters):
    after: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(
        0, description="The last number of the page before."
    )
    limit: PageSize = Field(100, description="How many at most.")


class OwnUsageQuery(QueryParameters):
    first: date | None = Field(
        None, alias="from", description="First day, in UTC; default: the first of `to`'s month."
    )
    last: date | None = Field(None, alias="to", description="Last day, in UTC; default: today.")
    by: Annotated[str, StringConstraints(pattern=f"^{OWN_GROUPS}(,{OWN_GROUPS})*$")] = Field(
        "day,model", description="What the rows are apart by, separated by commas."
    )
    format: Literal["json", "csv"] = "json"

    @property
    def groups(self) -> tuple[Grouping, ...]:
        return tuple(Grouping(name) for name in self.by.split(","))

    def of(self, caller: Caller) -> UsagePeriod:
        first, last = self._days()
        return UsagePeriod(first=first, last=last, tenant=caller.tenant, key=caller.key_id)

    def _days(self) -> tuple[date, date]:
        last = self.last or datetime.now(timezone.utc).date()
        first = self.first or last.replace(day=1)
        if first > last:
            raise InvalidRequest(
                f"'from' ({first}) is after 'to' ({last}).",
                code=ErrorCode.INVALID_PARAMETER,
                param="from",
            )
        return first, last


class UsageQuery(OwnUsageQuery):
    tenant: Text | None = Field(None, description="Only this tenant's usage.")
    key: Text | None = Field(None, description="Only the usage of the key with this id.")
    model: Text | None = Field(None, description="Only the usage of this model, by public name.")
    by: Annotated[str, StringConstraints(pattern=f"^{GROUPS}(,{GROUPS})*$")] = Field(
        "day,tenant,key,model", description="What the rows are apart by, separated by commas."
    )

    @property
    def period(self) -> UsagePeriod:
        first, last = self._days()
        return UsagePeriod(
            first=first, last=last, tenant=self.tenant, key=self.key, model=self.model
        )
