"""All routes that operate pools. Called by `app`.

They change where requests go, so they are for callers with the scope `admin`. Where everybody who
reaches the proxy may do everything (AUTH=off), `app` leaves them out; without any key they serve
this machine, as the whole proxy does then.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from proxy.access.concurrency import ConcurrencyLimit
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import typed_router
from proxy.api.openapi.responses import BODY, answers
from proxy.api.pools.operator import ModelName, actor
from proxy.api.pools.pool_bodies import (
    DeploymentList,
    EndpointBody,
    EndpointList,
    LoadBody,
    Plans,
    QueueList,
    ResultList,
    RollbackBody,
    SwitchBody,
    WeightsBody,
    deployment_bodies,
    endpoint_body,
    results_body,
)
from proxy.domain.endpoints import AuditTrail, Decisions, EndpointResult, Pools
from proxy.domain.errors import (
    Conflict,
    ErrorCode,
    InvalidRequest,
    RequestError,
    UnknownModel,
    echoed,
    in_short,
)
from proxy.domain.scheduling import (
    MOST_TENANTS_SHOWN,
    QueueState,
    Scheduler,
    TenantState,
)

# A folder's name, as Triton has it. No `/` and no `..`: some Tritons join it to a path.
MODEL = re.compile(r"(?!\.)[^\x00-\x1f\x7f/\\\ud800-\udfff]{1,256}")
MOST_REASONS = 5  # in the message of an error
Work = Callable[..., Awaitable[tuple[EndpointResult, ...]]]


def routes(
    pools: Pools,
    decisions: Decisions,
    plans: Callable[[], Plans],
    audit: AuditTrail,
    scheduler: Scheduler,
    *,
    bodies: BodyReader,
) -> tuple[APIRouter, ...]:
    return (
        _endpoints(pools, decisions, bodies=bodies),
        _loading(pools, audit, bodies=bodies),
        _deployments(plans, decisions, bodies=bodies),
        _queues(scheduler),
    )


def _endpoints(pools: Pools, decisions: Decisions, *, bodies: BodyReader) -> APIRouter:
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
    """Raises RequestError."""
    if all(each.address != address for each in pools.endpoints()):
        raise RequestError(
            f"No pool has an endpoint {echoed(address)}. GET /admin/v1/endpoints lists them.",
            code=ErrorCode.ENDPOINT_NOT_FOUND,
            param="address",
        )


def _loading(pools: Pools, audit: AuditTrail, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/models", tag="pools")
    changes = ConcurrencyLimit(1, what="changes of Triton's loaded models")

    async def changed(model: str, body: LoadBody, action: str, work: Work) -> Response:
        """The entry of the audit log comes first: what cannot be logged is not done."""
        who = actor()
        _check(pools, model, body.pools)
        with changes.permits():
            details = {"pools": body.pools}
            await audit.note(f"models.{action}", f"models/{model}", actor=who, details=details)
            results = await work(model, pools=body.pools)
            if not any(each.error is None for each in results):
                raise _all_refused(model, action, results)
            return JSONResponse(results_body(results))

    @router.post("/{model}/load", responses=answers(ResultList, *BODY, 409))
    async def load_model(model: ModelName, body: LoadBody) -> Response:
        """Every endpoint loads the model, or loads it again. The answer has a result for each.

        An error if none of them did it, such as for a model that no repository has.
        """
        return await changed(model, body, "load", pools.load_model)

    @router.post("/{model}/unload", responses=answers(ResultList, *BODY, 409))
    async def unload_model(model: ModelName, body: LoadBody) -> Response:
        """Every endpoint unloads the model: its running requests end first, new ones go nowhere."""
        return await changed(model, body, "unload", pools.unload_model)

    return router


def _all_refused(model: str, action: str, results: Iterable[EndpointResult]) -> Conflict:
    reasons = [f"{each.address}: {each.error}" for each in results]
    more = f"; and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    return Conflict(
        f"No endpoint could {action} the model {echoed(model)}. "
        f"{'; '.join(map(in_short, reasons[:MOST_REASONS]))}{more}",
        code=ErrorCode.ENDPOINTS_REFUSED,
        param="model",
    )


def _check(pools: Pools, model: str, names: list[str]) -> None:
    """Raises InvalidRequest, RequestError."""
    if not MODEL.fullmatch(model):
        raise InvalidRequest(f"{echoed(model)} is not the name of a Triton model.", param="model")
    known = {each.pool for each in pools.endpoints()}
    for name in names:
        if name not in known:
            raise RequestError(
                f"There is no pool {echoed(name)} with an endpoint. GET /admin/v1/endpoints lists "
                "pools and endpoints.",
                code=ErrorCode.ENDPOINT_NOT_FOUND,
                param="pools",
            )
    if not known:
        raise RequestError("No pool has an endpoint at present.", code=ErrorCode.ENDPOINT_NOT_FOUND)


def _deployments(
    plans: Callable[[], Plans], decisions: Decisions, *, bodies: BodyReader
) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/deployments", tag="pools")
    changed = answers(DeploymentList, *BODY, 409)

    def listed(model: str | None = None) -> Response:
        data = [*deployment_bodies(plans(), decisions, model)]
        return JSONResponse({"object": "list", "data": data})

    async def weighted(model: str, given: dict[str, float], param: str, who: str) -> Response:
        """param: the field that names the deployments, for errors."""
        names = _names_of(plans(), model)
        for name in given:
            if name not in names:
                raise RequestError(
                    f"The model {echoed(model)} has no deployment {echoed(name)}. "
                    f"It has {', '.join(names[:10])}.",
                    code=ErrorCode.DEPLOYMENT_NOT_FOUND,
                    param=param,
                )
        weights = {name: given.get(name, 0.0) for name in names}
        await decisions.set_weights(model, weights, actor=who)
        return listed(model)

    @router.get("", responses=answers(DeploymentList))
    async def list_deployments() -> Response:
        """Deployments with the weights in force, in the order of models.yaml."""
        actor()
        return listed()

    @router.put("/{model:path}/weights", responses=changed)
    async def replace_weights(model: ModelName, body: WeightsBody) -> Response:
        """Sets all weights of a model, in place of those of models.yaml, within a second."""
        return await weighted(model, body.weights, "weights", actor())

    @router.post("/{model:path}/switch", responses=changed)
    async def switch(model: ModelName, body: SwitchBody) -> Response:
        """Gives one deployment all requests. Running streams end where they began."""
        return await weighted(model, {body.deployment: 1.0}, "deployment", actor())

    @router.post("/{model:path}/rollback", responses=changed)
    async def roll_back(model: ModelName, body: RollbackBody) -> Response:
        """Takes the last change of the weights back; again and again, up to 20 changes."""
        who = actor()
        _names_of(plans(), model)
        await decisions.roll_back(model, actor=who)
        return listed(model)

    return router


def _names_of(plans: Plans, model: str) -> list[str]:
    """The deployments' names. Raises UnknownModel."""
    if (plan := plans.get(model)) is None:
        raise UnknownModel(model)
    return [one.name for one in plan.deployments]


def _queues(scheduler: Scheduler) -> APIRouter:
    router = APIRouter(prefix="/admin/v1/queues", tags=["pools"])

    @router.get("", responses=answers(QueueList))
    async def list_queues() -> Response:
        """Queues with a capacity or with streams, by pool and model.

        Of each the tenants with the most streams, 50 at most.
        """
        actor()
        states = scheduler.states(tenants=MOST_TENANTS_SHOWN)
        return JSONResponse({"object": "list", "data": queue_bodies(states)})

    return router


def queue_bodies(states: Iterable[QueueState]) -> list[dict[str, Any]]:
    return [
        {**asdict(one), "tenants": [_tenant_body(each, one.running) for each in one.tenants]}
        for one in states
    ]


def _tenant_body(tenant: TenantState, running: int) -> dict[str, Any]:
    share = tenant.running / running if running else 0.0
    return {**asdict(tenant), "share": round(share, 6)}
