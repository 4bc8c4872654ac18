"""/admin/v1/log-level: show and change the level of the log."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.bodies.body_reader import BodyReader
from triton_openai.proxy.api.logs import log_level_operations
from triton_openai.proxy.api.logs.log_level_operations import LogLevelBody
from triton_openai.proxy.api.pools.operator import actor
from triton_openai.proxy.domain.audit_trail import AuditTrail
from triton_openai.proxy.telemetry.chosen_level import ChosenLevel

PATH = "/admin/v1/log-level"


def routes(levels: ChosenLevel, audit: AuditTrail, *, bodies: BodyReader) -> APIRouter:
    router = APIRouter()

    @router.get(PATH, openapi_extra=log_level_operations.SHOW.extra)
    async def show_log_level() -> Response:
        """The level in force, and the configured one."""
        actor()
        return _shown(levels)

    @router.put(PATH, openapi_extra=log_level_operations.SET.extra)
    async def set_log_level(http: Request) -> Response:
        """Holds in this proxy until it stops or `for_s` is over.

        The entry of the audit log comes first: what cannot be logged is not done.
        """
        who = actor()
        body = await bodies.read(http, LogLevelBody)
        details = {"level": body.level.value, "for_s": body.for_s}
        await audit.note("log-level.set", "log-level", actor=who, details=details)
        levels.set(body.level, body.for_s)
        return _shown(levels)

    return router


def _shown(levels: ChosenLevel) -> Response:
    return JSONResponse(asdict(levels.in_force))
