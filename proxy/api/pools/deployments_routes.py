"""/admin/v1/deployments: the weights of each model's deployments; switch and roll back."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import typed_router
from proxy.api.openapi.responses import BODY, answers
from proxy.api.pools.operator import ModelName, actor
from proxy.api.pools.pool_answers import DeploymentList, deployment_bodies
from proxy.api.pools.pool_bodies import (
    RollbackBody,
    SwitchBody,
    WeightsBody,
)
from proxy.domain.configured_deployments import ConfiguredDeployments
from proxy.domain.endpoints import Decisions
from proxy.domain.errors import ErrorCode, NotStored, UnknownModel, echoed


def routes(
    configured: ConfiguredDeployments, decisions: Decisions, *, bodies: BodyReader
) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/deployments", tag="pools")
    changed = answers(DeploymentList, *BODY, 409)
    weights = Weights(configured, decisions)

    @router.get("", responses=answers(DeploymentList))
    async def list_deployments() -> Response:
        """Deployments with the weights in force, in the order of models.yaml."""
        actor()
        return weights.listed()

    @router.put("/{model:path}/weights", responses=changed)
    async def replace_weights(model: ModelName, body: WeightsBody) -> Response:
        """Sets all weights of a model, in place of those of models.yaml, within a second."""
        return await weights.set(model, body.weights, "weights", actor())

    @router.post("/{model:path}/switch", responses=changed)
    async def switch(model: ModelName, body: SwitchBody) -> Response:
        """Gives one deployment all requests. Running streams end where they began."""
        return await weights.set(model, {body.deployment: 1.0}, "deployment", actor())

    @router.post("/{model:path}/rollback", responses=changed)
    async def roll_back(model: ModelName, body: RollbackBody) -> Response:
        """Takes the last change of the weights back; again and again, up to 20 changes."""
        who = actor()
        weights.names_of(model)
        await decisions.roll_back(model, actor=who)
        return weights.listed(model)

    return router


class Weights:
    """The weights in force, as the routes show and change them."""

    def __init__(self, configured: ConfiguredDeployments, decisions: Decisions) -> None:
        self._configured = configured
        self._decisions = decisions

    def listed(self, model: str | None = None) -> Response:
        data = [*deployment_bodies(self._configured, self._decisions, model)]
        return JSONResponse({"object": "list", "data": data})

    def names_of(self, model: str) -> list[str]:
        """Raises UnknownModel."""
        names = [each.name for each in self._configured.deployments() if each.model == model]
        if not names:
            raise UnknownModel(model)
        return names

    async def set(self, model: str, given: dict[str, float], param: str, who: str) -> Response:
        """param: the field that names the deployments, for errors."""
        names = self.names_of(model)
        for name in given:
            if name not in names:
                raise _unknown(model, name, names, param)
        weights = {name: given.get(name, 0.0) for name in names}
        await self._decisions.set_weights(model, weights, actor=who)
        return self.listed(model)


def _unknown(model: str, name: str, names: list[str], param: str) -> NotStored:
    known = ", ".join(names[:10])
    return NotStored(
        f"The model {echoed(model)} has no deployment {echoed(name)}. It has {known}.",
        code=ErrorCode.DEPLOYMENT_NOT_FOUND,
        param=param,
    )
