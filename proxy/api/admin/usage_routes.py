"""/admin/v1/usage: everybody's usage. /v1/usage: the caller's own."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.access.store.usage_reports import (
    Grouping,
    UsagePeriod,
    UsageReports,
    UsageTotals,
    as_csv,
)
from triton_openai.proxy.api.admin import admin_operations, admin_queries
from triton_openai.proxy.api.admin.admin_answers import listed, usage_body
from triton_openai.proxy.api.admin.administrator import actor
from triton_openai.proxy.api.bodies import query_parameters
from triton_openai.proxy.api.openapi.operation import CSV
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.domain.identity import current_caller

MOST_ROWS = 20_000  # of one answer, which is made at once
ATTACHED = {"Content-Disposition": 'attachment; filename="usage.csv"'}


def routes(usage: UsageReports) -> APIRouter:
    router = APIRouter()

    @router.get("/admin/v1/usage", openapi_extra=admin_operations.REPORT_USAGE.extra)
    async def report_usage(http: Request) -> Response:
        """Usage of all tenants by period, as JSON or CSV. The last second may be missing."""
        actor()
        query = query_parameters.read(http, admin_queries.UsageQuery)
        return _answer(await _rows(usage, query.period, query.groups), query.format)

    @router.get("/v1/usage", openapi_extra=admin_operations.OWN_USAGE.extra)
    async def own_usage(http: Request) -> Response:
        """What the key of this request has used. The last second may be missing."""
        query = query_parameters.read(http, admin_queries.OwnUsageQuery)
        period = query.of(current_caller.get())
        return _answer(await _rows(usage, period, query.groups), query.format)

    return router


async def _rows(
    usage: UsageReports, period: UsagePeriod, groups: tuple[Grouping, ...]
) -> Sequence[UsageTotals]:
    rows = await usage.report(period, groups, limit=MOST_ROWS + 1)
    if len(rows) > MOST_ROWS:
        raise InvalidRequest(
            f"The report has more than {MOST_ROWS:,} rows: choose fewer days, or name less in "
            "'by' (`triton-openai usage` has no such limit).",
            code=ErrorCode.INVALID_PARAMETER,
            param="by",
        )
    return rows


def _answer(rows: Sequence[UsageTotals], form: str) -> Response:
    if form == "csv":
        return Response(as_csv(rows), media_type=CSV, headers=ATTACHED)
    return JSONResponse(listed(usage_body(rows)))
