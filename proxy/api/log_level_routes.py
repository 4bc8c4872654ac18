"""/admin/v1/log-level: show and change the level of the log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import JSONResponse, Response

from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import StrictBody, typed_router
from proxy.api.openapi.responses import BODY, Answer, answers
from proxy.api.pools.operator import actor
from proxy.domain.endpoints import AuditTrail
from proxy.domain.log_level import LogLevel
from proxy.telemetry.logs import ChosenLevel

LONGEST_S = 604_800  # a week


class LogLevelBody(StrictBody):
    level: LogLevel = Field(description="Lines below it are not written.", examples=["debug"])
    for_s: Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Seconds after which the configured level holds again; null: no end.",
        examples=[600],
    )


class LogLevelAnswer(Answer):
    level: LogLevel = Field(description="The one in force.", examples=["debug"])
    configured: LogLevel = Field(description="`LOG_LEVEL` of the settings.", examples=["info"])
    returns_in_s: float | None = Field(
        description="Seconds until the configured level holds again; null: no end was given.",
        examples=[600.0],
    )


def routes(levels: ChosenLevel, audit: AuditTrail, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/log-level", tag="logs")

    @router.get("", responses=answers(LogLevelAnswer))
    async def show_log_level() -> Response:
        """The level in force, and the configured one."""
        actor()
        return _shown(levels)

    @router.put("", responses=answers(LogLevelAnswer, *BODY))
    async def set_log_level(body: LogLevelBody) -> Response:
        """Holds in this proxy until it stops or `for_s` is over.

        The entry of the audit log comes first: what cannot be logged is not done.
        """
        who = actor()
        details = {"level": body.level.value, "for_s": body.for_s}
        await audit.note("log-level.set", "log-level", actor=who, details=details)
        levels.set(body.level, body.for_s)
        return _shown(levels)

    return router


def _shown(levels: ChosenLevel) -> Response:
    return JSONResponse(asdict(levels.in_force))
