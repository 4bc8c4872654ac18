"""All endpoints as one server of KServe's protocol. Implements domain.kserve.KserveBackend."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from proxy.domain.errors import ModelUnavailable, UnknownModel
from proxy.domain.kserve import (
    KserveRequest,
    KserveResponse,
    Metadata,
)
from proxy.pools.pool import Endpoint
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
            return await endpoint.connection.kserve.infer(
                model, version, request, timeout_s=timeout_s
            )
        except ModelUnavailable:
            endpoint.lost()
            raise

    async def model_metadata(self, model: str, version: str) -> Metadata:
        return await self._next(model).connection.kserve.model_metadata(model, version)

    async def is_model_ready(self, model: str, version: str) -> bool:
        try:
            endpoint = self._next(model)
        except (UnknownModel, ModelUnavailable):
            return False
        return await endpoint.connection.kserve.is_model_ready(model, version)

    async def is_server_ready(self) -> bool:
        with suppress(ModelUnavailable):
            return bool(self._usable())
        return False

    async def server_metadata(self) -> Metadata:
        """Of one of the endpoints."""
        return await self._usable()[0].connection.kserve.server_metadata()

    def _usable(self) -> list[Endpoint]:
        """Raises ModelUnavailable: there is none."""
        endpoints = (one for pool in self._pools.pools.values() for one in pool.endpoints.values())
        usable = [one for one in endpoints if one.ready_names and one.is_routable]
        if not usable:
            raise ModelUnavailable("No Triton server is ready.")
        return usable

    def _next(self, model: str) -> Endpoint:
        """Raises UnknownModel, ModelUnavailable."""
        serving = [one for one in self._usable() if model in one.ready_names]
        if not serving:
            raise UnknownModel(model)
        return serving[next(self._turns) % len(serving)]
