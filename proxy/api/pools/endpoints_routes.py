"""/admin/v1/endpoints: what the proxy knows of each endpoint; drain and undrain one."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import typed_router
from proxy.api.openapi.responses import BODY, answers
from proxy.api.pools.operator import actor
from proxy.api.pools.pool_answers import EndpointList, endpoint_body
from proxy.api.pools.pool_bodies import EndpointBody
from proxy.domain.endpoints import Decisions, Pools
from proxy.domain.errors import ErrorCode, NotStored, echoed


def routes(pools: Pools, decisions: Decisions, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/endpoints", tag="pools")

    @router.get("", responses=answers(EndpointList))
    async def list_endpoints() -> Response:
        """Endpoints, by pool and address, as the proxy that answers sees them."""
        actor()
        return _listed(pools, decisions)

    @router.post("/drain", responses=answers(EndpointList, *BODY, 409))
    async def drain_endpoint(body: EndpointBody) -> Response:
        """Gives an endpoint no new streams, within a second in every proxy of the same store.

        Its state is `draining` until the streams of the proxy that answers have ended, then
        `drained`. It stays so until it is undrained; with a store, also after a restart.
        """
        who = actor()
        _check_known(pools, body.address)
        await decisions.drain(body.address, actor=who)
        return _listed(pools, decisions, body.address)

    @router.post("/undrain", responses=answers(EndpointList, *BODY))
    async def undrain_endpoint(body: EndpointBody) -> Response:
        """Gives an endpoint new streams again, if it is healthy."""
        who = actor()
        if body.address not in decisions.drained:
            _check_known(pools, body.address)
        await decisions.undrain(body.address, actor=who)
        return _listed(pools, decisions, body.address)

    return router


def _listed(pools: Pools, decisions: Decisions, address: str | None = None) -> Response:
    drained, endpoints = decisions.drained, pools.endpoints()
    shown = [each for each in endpoints if address in (None, each.address)]
    gone = drained - {each.address for each in endpoints}
    return JSONResponse(
        {
            "object": "list",
            "data": [endpoint_body(each, drained) for each in shown],
            "drained_and_gone": sorted(gone if address is None else gone & {address}),
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
