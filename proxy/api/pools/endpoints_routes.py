"""/admin/v1/endpoints: what the proxy knows of each endpoint; drain and undrain one."""

from __future__ import annotations

import secrets
from functools import partial

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.bodies.body_reader import BodyReader
from triton_openai.proxy.api.openapi.responses import BODY, answers
from triton_openai.proxy.api.pools.operator import actor
from triton_openai.proxy.api.pools.pool_answers import EndpointList, endpoint_body
from triton_openai.proxy.api.pools.pool_bodies import EndpointBody
from triton_openai.proxy.api.typed_route import typed_router
from triton_openai.proxy.domain.endpoints import Decisions, Pools
from triton_openai.proxy.domain.errors import ErrorCode, NotStored, echoed


def routes(
    pools: Pools, decisions: Decisions, *, bodies: BodyReader, processes: int = 1
) -> APIRouter:
    """processes: how many this proxy has. Each counts its own streams, and answers for itself."""
    router = typed_router(bodies, "/admin/v1/endpoints", tag="pools")
    listed = partial(_listed, pools, decisions, (secrets.token_hex(4), processes))

    @router.get("", responses=answers(EndpointList))
    async def list_endpoints() -> Response:
        """Endpoints, by pool and address, as the process that answers sees them."""
        actor()
        return listed()

    @router.post("/drain", responses=answers(EndpointList, *BODY, 409))
    async def drain_endpoint(body: EndpointBody) -> Response:
        """Gives an endpoint no new streams, within a second in every process.

        Its state is `draining` until the streams of the process that answers have ended, then
        `drained`. It stays so, also after a restart, until it is undrained.
        """
        who = actor()
        _check_known(pools, body.address)
        await decisions.drain(body.address, actor=who)
        return listed(body.address)

    @router.post("/undrain", responses=answers(EndpointList, *BODY))
    async def undrain_endpoint(body: EndpointBody) -> Response:
        """Gives an endpoint new streams again, if it is healthy."""
        who = actor()
        if body.address not in decisions.drained:
            _check_known(pools, body.address)
        await decisions.undrain(body.address, actor=who)
        return listed(body.address)

    return router


def _listed(
    pools: Pools, decisions: Decisions, process: tuple[str, int], address: str | None = None
) -> Response:
    """process: the name of this one, and the number of all."""
    drained, endpoints = decisions.drained, pools.endpoints()
    shown = [each for each in endpoints if address in (None, each.address)]
    gone = drained - {each.address for each in endpoints}
    return JSONResponse(
        {
            "object": "list",
            "data": [endpoint_body(each, drained) for each in shown],
            "drained_and_gone": sorted(gone if address is None else gone & {address}),
            "process": process[0],
            "processes": process[1],
        }
    )


def _check_known(pools: Pools, address: str) -> None:
    """Raises NotStored."""
    if all(each.address != address for each in pools.endpoints()):
        raise NotStored(
            f"No pool has an endpoint {echoed(address)}. GET /admin/v1/endpoints lists them.",
            code=ErrorCode.ENDPOINT_NOT_FOUND,
            param="address",
        )
