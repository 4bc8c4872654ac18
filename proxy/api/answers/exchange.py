"""A request of a protocol in the domain's terms, and what renders its answer in the protocol's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.api.answers.stream_format import Part, Payload
from proxy.domain.completion import Completion
from proxy.domain.events import OutputEvent
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest


class Renderer(Protocol):
    """One protocol's words for events. Payloads are JSON objects."""

    @property
    def field_names(self) -> Mapping[str, str]:
        """Fields whose name in this protocol is not the domain's, for errors."""

    def chunks(self, event: OutputEvent) -> Sequence[Part]: ...

    def kept(self, event: OutputEvent) -> OutputEvent:
        """The event as it is kept for `full`: what is large is rendered as it comes."""

    def full(self, completion: Completion) -> Payload:
        """The fold of all events that `kept` returned."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """`card`: of the model that the request names, looked up once."""

    request: GenerationRequest
    card: ModelCard
    renderer: Renderer
