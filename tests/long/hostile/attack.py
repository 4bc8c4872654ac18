"""What an attack is, as data: how it is sent, which answers are right, and what it may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

REFUSED = frozenset({400, 403, 404, 413, 414, 415, 421, 422, 429, 431})
FINE = frozenset({200})
ANY = REFUSED | FINE  # legal but expensive, or refused: both are right, a 5xx or silence is not
CLOSED = 0  # the server closed the connection without a status
SILENT = -1  # no answer within the time limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server under attack. `timeout_s`: how long a caller waits for an answer.

    source: the address that attackers connect from, None for any.
    """

    host: str
    port: int
    timeout_s: float = 30.0
    source: str | None = None
    steady: str = "steady"  # a model that gives a token every 20 ms, whatever it is asked
    demo: str = "demo"  # a model on the ONNX engine
    pooled: str = "pooled"  # a model that embeds and scores
    asleep: str = "sleeping"  # a model that no endpoint serves any more: its requests are held

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """status: HTTP's, or CLOSED, or SILENT. body: its first bytes. wall_s: until its end."""

    status: int
    body: bytes = b""
    wall_s: float = 0.0


Send = Callable[[Target], list[Reply]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One reproduction.

    answers: statuses that are right. wall_s: of each reply at most, in seconds.
    cpu_s: CPU of the proxy's processes, without its sandboxes and what the bystander takes.
    growth_mb: of their memory.
    gap_s: the largest in the bystander's stream, of 20 ms a token.
    is_on_engine: the bystander is a row of the same engine, else of another model.
    connections: how many it opens, where `send` is no Burst, which has a count of its own.
    waits_s: of the bystander's small requests; of a flood they may wait as long as its own do.
    attacks: the routes of a `send` that names none; such are chats, unless they say otherwise.
    """

    name: str
    send: Send
    answers: frozenset[int] = ANY
    wall_s: float = 10.0
    cpu_s: float = 1.0
    growth_mb: float = 100.0
    gap_s: float = 0.25
    is_on_engine: bool = False
    connections: int = 1
    waits_s: float = 1.0
    attacks: tuple[str, ...] = ()

    @property
    def routes(self) -> tuple[str, ...]:
        """Paths of the application, as it declares them. One that ends with a slash: all below."""
        return self.attacks or (getattr(self.send, "route", "/v1/chat/completions"),)

    @property
    def requests(self) -> int:
        return getattr(self.send, "count", self.connections)
