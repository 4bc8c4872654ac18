"""The port to telemetry: what happened on each endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from proxy.domain.endpoints import EndpointState


class Outcome(str, Enum):
    """ENDED: with a finish reason. LEFT: closed from our side. LOST: the endpoint went away.

    REFUSED: it answered with an error, such as a prompt that is too long. FOREIGN: it handed us
    another request's answer, which was discarded.
    """

    ENDED = "ended"
    LEFT = "left"
    LOST = "lost"
    REFUSED = "refused"
    FOREIGN = "foreign"


class Place(NamedTuple):
    pool: str
    endpoint: str


class EndpointCounter(Protocol):
    def began(self, place: Place, first_token_s: float, matched: float) -> None:
        """A stream's first token came. matched: the share of its prompt that was expected to be in
        the endpoint's prefix cache, 0 to 1.
        """
        ...

    def ended(self, place: Place, outcome: str, tokens: int) -> None:
        """outcome: the value of an Outcome."""
        ...

    def ejected(self, place: Place) -> None: ...

    def counted(self, pool: str, endpoints: Mapping[EndpointState, int]) -> None:
        """How many endpoints of the pool are in each state now; a state that is missing has none.
        Called about once a second.
        """
        ...
