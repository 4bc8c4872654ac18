"""One Triton server: streams, catalog, tokenizer and model control over its connections."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from secrets import token_hex

import grpc
from tritonclient.grpc import service_pb2
from typing_extensions import Self

from proxy.domain.endpoints import EndpointRefused
from proxy.domain.engine import HIGHEST_PRIORITY, EngineRequest
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import Kind, LoadedModel, ModelCard
from proxy.domain.request import Sampling, TextPrompt
from proxy.triton.catalog import TritonCatalog
from proxy.triton.client import TritonClient
from proxy.triton.kserve_backend import TritonKserve
from proxy.triton.target import Target
from proxy.triton.tokenizer import TritonTokenizer

CONTROL_TIMEOUT_S = 600.0  # a large model takes minutes to load
TRIAL_TOKENS = 2  # the second one is of a decode step
TRIAL_S = 60.0
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

    async def try_model(self, model: LoadedModel, note_tokens: Callable[[int], None]) -> None:
        """Generates a few tokens at most, within TRIAL_S. note_tokens: gets how many the engine
        counts, of the prompt and of each response.

        Raises ProxyError as an engine's stream does. An answer that ends at once is fine, and so is
        a model of others that refuses this one, such as one for embeddings.
        """
        takes, pooling = model.capabilities, model.facts.pooling
        if model.facts.kind is Kind.TEXT:  # whose tensors only models.yaml knows
            return
        request = EngineRequest(
            id=f"trial-{token_hex(16)}",
            model=ModelCard(
                name=model.name, triton_model=model.name, facts=model.facts, capabilities=takes
            ),
            text="Hello",
            max_tokens=TRIAL_TOKENS,
            embeds=None if pooling is None else 0,
            batch=() if pooling is None else (TextPrompt(text="Hello"),),
            timeout_s=TRIAL_S,
            sampling=Sampling(min_tokens=TRIAL_TOKENS if "min_tokens" in takes else None),
            priority=HIGHEST_PRIORITY if "priority" in takes else None,
        )
        async with aclosing(self.engine.generate(request)) as deltas:
            try:
                async for delta in deltas:
                    note_tokens((delta.prompt_tokens or 0) + len(delta.token_bytes))
            except InvalidRequest:
                if model.facts.adopted is None:
                    raise

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
