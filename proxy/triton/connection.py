"""One Triton server: streams, catalog, tokenizer and model control over its connections."""

from __future__ import annotations

import grpc
from tritonclient.grpc import service_pb2
from typing_extensions import Self

from proxy.domain.endpoints import EndpointRefused
from proxy.triton.catalog import TritonCatalog
from proxy.triton.client import TritonClient
from proxy.triton.kserve_backend import TritonKserve
from proxy.triton.target import Target
from proxy.triton.tokenizer import TritonTokenizer

CONTROL_TIMEOUT_S = 600.0  # a large model takes minutes to load
NOT_THERE = "failed to poll from model repository"  # tritonserver 2.51, of an unknown model


class TritonConnection:
    """Entered on the event loop that uses it. max_age_s: see TritonClient."""

    def __init__(self, target: Target, *, max_age_s: float | None = None) -> None:
        self.engine = TritonClient(target, max_age_s=max_age_s)
        self.catalog = TritonCatalog(self.engine)
        self.tokenizer = TritonTokenizer(self.engine)
        self.kserve = TritonKserve(self.engine)

    async def __aenter__(self) -> Self:
        await self.engine.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.engine.__aexit__(*exc_info)

    async def load_model(self, model: str) -> None:
        """Raises EndpointRefused, such as without `--model-control-mode explicit`."""
        request = service_pb2.RepositoryModelLoadRequest(model_name=model)
        await self._control(self.engine.stub.RepositoryModelLoad, request)

    async def unload_model(self, model: str) -> None:
        """Triton lets running streams finish. Raises EndpointRefused."""
        request = service_pb2.RepositoryModelUnloadRequest(model_name=model)
        await self._control(self.engine.stub.RepositoryModelUnload, request)

    async def _control(self, method: object, request: object) -> None:
        assert callable(method)
        try:
            await method(
                request, timeout=CONTROL_TIMEOUT_S, metadata=self.engine.restricted_metadata
            )
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            if NOT_THERE in details:
                details = f"its model repository has no such model ({details})"
            raise EndpointRefused(f"{error.code().name}: {details}") from error
