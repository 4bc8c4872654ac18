"""The port to one Triton server. `proxy.triton.connection` implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from proxy.domain.endpoints import EndpointAddress
from proxy.domain.engine import TokenSource
from proxy.domain.kserve import KserveBackend
from proxy.domain.model import LoadedModel
from proxy.domain.tokenizer import Tokenizer


class EndpointCatalog(Protocol):
    """What one Triton has loaded. Both raise NotReady."""

    async def ready_models(self) -> frozenset[str]:
        """Name and version of everything that is ready there, of other projects, too. Cheap."""
        ...

    async def load(self) -> tuple[LoadedModel, ...]:
        """Every model of this project that is ready; at least one."""
        ...


class Repository(Protocol):
    """Triton's model control. Both raise domain.endpoints.EndpointRefused."""

    async def load_model(self, model: str) -> None: ...

    async def unload_model(self, model: str) -> None: ...


class Connection(Protocol):
    """Everything over one connection, entered on the event loop that uses it."""

    @property
    def engine(self) -> TokenSource: ...

    @property
    def catalog(self) -> EndpointCatalog: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def repository(self) -> Repository: ...

    @property
    def kserve(self) -> KserveBackend: ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *exc_info: object) -> None: ...


Connect = Callable[[EndpointAddress], Connection]
