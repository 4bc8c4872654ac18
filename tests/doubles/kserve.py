"""A double of domain.kserve.KserveBackend: models that answer with their own inputs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from proxy.domain.errors import UnknownModel
from proxy.domain.kserve import KserveRequest, KserveResponse, Metadata


class EchoModels:
    """names: the models. requests: what they were sent. Each input comes back as an output.

    may_answer: clear it, and inferences run until it is set.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self.requests: list[tuple[str, str, KserveRequest]] = []
        self.is_ready = True
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def _check(self, model: str) -> None:
        if model not in self.names:
            raise UnknownModel(model)

    async def infer(
        self, model: str, version: str, request: KserveRequest, *, timeout_s: float
    ) -> KserveResponse:
        self._check(model)
        self.requests.append((model, version, request))
        await self.may_answer.wait()
        asked = {each.name for each in request.outputs} or {each.name for each in request.inputs}
        outputs = tuple(replace(t, parameters={}) for t in request.inputs if t.name in asked)
        return KserveResponse(
            model=model, version=version or "1", id=request.id, parameters={}, outputs=outputs
        )

    async def model_metadata(self, model: str, version: str) -> Metadata:
        self._check(model)
        tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
        named = {"name": model, "versions": ["1"], "platform": "echo"}
        return {**named, "inputs": [tensor], "outputs": [tensor]}

    async def is_model_ready(self, model: str, version: str) -> bool:
        return model in self.names and self.is_ready

    async def is_server_ready(self) -> bool:
        return self.is_ready

    async def server_metadata(self) -> Metadata:
        return {"name": "triton", "version": "2.51.0", "extensions": ["binary_tensor_data"]}
