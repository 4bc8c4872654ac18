"""All endpoints as one server of KServe's protocol. Implements domain.kserve.KserveBackend."""

from __future__ import annotations

from itertools import count

from proxy.domain.errors import ModelUnavailable, UnknownModel
from proxy.domain.kserve import (
    KserveBackend,
    KserveRequest,
    KserveResponse,
    ModelMetadata,
    ServerMetadata,
)
from proxy.pools.endpoint import Endpoint
from proxy.pools.pool_set import PoolSet


class PooledKserve:
    """The endpoints that have a model ready take turns, whatever pool they are in."""

    def __init__(self, pools: PoolSet) -> None:
        self._pools = pools
        self._turns = count()

    async def infer(
        self, model: str, version: str, request: KserveRequest, *, timeout_s: float
    ) -> KserveResponse:
        """Sent once: nobody knows whether it may be sent again."""
        endpoint = self._next(model)
        try:
            return await _kserve(endpoint).infer(model, version, request, timeout_s=timeout_s)
        except ModelUnavailable:
            endpoint.lost()
            raise

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        return await _kserve(self._next(model)).model_metadata(model, version)

    async def is_model_ready(self, model: str, version: str) -> bool:
        try:
            endpoint = self._next(model)
        except (UnknownModel, ModelUnavailable):
            return False
        return await _kserve(endpoint).is_model_ready(model, version)

    async def is_server_ready(self) -> bool:
        return bool(self._usable())

    async def server_metadata(self) -> ServerMetadata:
        """Of one of the endpoints."""
        if not (usable := self._usable()):
            raise _unavailable()
        return await _kserve(usable[0]).server_metadata()

    def _usable(self) -> list[Endpoint]:
        endpoints = (one for pool in self._pools.pools.values() for one in pool.endpoints.values())
        return [one for one in endpoints if one.ready_names and one.is_routable]

    def _next(self, model: str) -> Endpoint:
        """Raises UnknownModel, ModelUnavailable."""
        if not (usable := self._usable()):
            raise _unavailable()
        serving = [one for one in usable if model in one.ready_names]
        if not serving:
            raise UnknownModel(model)
        return serving[next(self._turns) % len(serving)]


def _kserve(endpoint: Endpoint) -> KserveBackend:
    return endpoint.connection.kserve


def _unavailable() -> ModelUnavailable:
    return ModelUnavailable("No Triton server is ready.")
