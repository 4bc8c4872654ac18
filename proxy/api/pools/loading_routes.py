"""/admin/v1/models: has every endpoint load or unload a model of its repository."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from proxy.access.concurrency import ConcurrencyLimit
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import typed_router
from proxy.api.openapi.responses import BODY, answers
from proxy.api.pools.operator import ModelName, actor
from proxy.api.pools.pool_answers import ResultList, results_body
from proxy.api.pools.pool_bodies import LoadBody
from proxy.domain.audit_trail import AuditTrail
from proxy.domain.endpoints import EndpointResult, Pools
from proxy.domain.errors import ErrorCode, InvalidRequest, NotStored, echoed

# A folder's name, as Triton has it. No `/` and no `..`: some Tritons join it to a path.
MODEL = re.compile(r"(?!\.)[^\x00-\x1f\x7f/\\\ud800-\udfff]{1,256}")
Work = Callable[..., Awaitable[tuple[EndpointResult, ...]]]


def routes(pools: Pools, audit: AuditTrail, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/models", tag="pools")
    changes = ConcurrencyLimit(1, what="changes of Triton's loaded models")

    async def changed(model: str, body: LoadBody, action: str, work: Work) -> Response:
        """The entry of the audit log comes first: what cannot be logged is not done."""
        who = actor()
        _check(pools, model, body.pools)
        with changes.permits():
            details = {"pools": body.pools}
            await audit.note(f"models.{action}", f"models/{model}", actor=who, details=details)
            return JSONResponse(results_body(await work(model, pools=body.pools)))

    @router.post("/{model}/load", responses=answers(ResultList, *BODY))
    async def load_model(model: ModelName, body: LoadBody) -> Response:
        """Every endpoint loads the model, or loads it again. The answer has a result for each."""
        return await changed(model, body, "load", pools.load_model)

    @router.post("/{model}/unload", responses=answers(ResultList, *BODY))
    async def unload_model(model: ModelName, body: LoadBody) -> Response:
        """Every endpoint unloads the model: its running requests end first, new ones go nowhere."""
        return await changed(model, body, "unload", pools.unload_model)

    return router


def _check(pools: Pools, model: str, names: list[str]) -> None:
    """Raises InvalidRequest, NotStored."""
    if not MODEL.fullmatch(model):
        raise InvalidRequest(
            f"{echoed(model)} is no name of a Triton model.",
            code=ErrorCode.INVALID_PARAMETER,
            param="model",
        )
    known = {each.pool for each in pools.endpoints()}
    for name in names:
        if name not in known:
            raise NotStored(
                f"There is no pool {echoed(name)} with an endpoint. GET /admin/v1/endpoints lists "
                "pools and endpoints.",
                code=ErrorCode.ENDPOINT_NOT_FOUND,
                param="pools",
            )
    if not known:
        raise NotStored(
            "No pool has an endpoint at present.", code=ErrorCode.ENDPOINT_NOT_FOUND, param=None
        )
