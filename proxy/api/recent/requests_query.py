"""Query parameters of GET /admin/v1/requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from proxy.api.http.typed_route import QueryParameters
from proxy.telemetry.recent_requests import RequestFilter

Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class RequestsQuery(QueryParameters):
    limit: Annotated[int, Field(ge=1, le=200)] = Field(50, description="How many at most.")
    model: Name | None = Field(None, description="Only requests for this model, by public name.")
    tenant: Name | None = Field(None, description="Only this tenant's requests.")
    min_ms: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Only requests that took at least so long."
    )
    failed: bool | None = Field(
        None, description="Only requests that got an error; false: only those that got none."
    )

    @property
    def filter(self) -> RequestFilter:
        return RequestFilter(
            model=self.model, tenant=self.tenant, min_ms=self.min_ms, failed=self.failed
        )
