"""What a protocol hands to `answer`: the request in the domain's terms, what renders its answer,
and the format of its stream (server-sent events or JSON lines).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import orjson

from proxy.domain.completion import Completion
from proxy.domain.errors import ProxyError
from proxy.domain.events import OutputEvent
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Annotation:
    """Extra data that a client asked for, sent between the payloads of a stream. `value`: JSON."""

    name: str
    value: Any


Part = Payload | Annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFormat:
    """`error` encodes the usual error body; `end` is sent last, after an error as well.

    `comment` encodes text that ordinary clients ignore; None where the format has no comments.
    """

    headers: list[tuple[bytes, bytes]]
    payload: Callable[[Payload], bytes]
    error: Callable[[Payload], bytes]
    end: bytes = b""
    comment: Callable[[bytes], bytes] | None = None

    def encode(self, part: Part) -> bytes:
        """Raises TypeError: an annotation, in a format without comments."""
        if not isinstance(part, Annotation):
            return self.payload(part)
        if self.comment is None:
            raise TypeError(f"this format cannot carry the annotation {part.name!r}")
        return self.comment(part.name.encode() + b" " + orjson.dumps(part.value))


def _event(payload: Payload) -> bytes:
    """One event with a JSON payload on a single line."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def _error_event(body: Payload) -> bytes:
    error = {key: body["error"][key] for key in ("message", "type", "code")}
    return b"event: error\n" + _event(error)


def _comment(text: bytes) -> bytes:
    """`text` must be one line."""
    return b": " + text + b"\n\n"


def _line(payload: Payload) -> bytes:
    return orjson.dumps(payload) + b"\n"


def _error_line(body: Payload) -> bytes:
    return _line({**body, "done": True})


_UNBUFFERED = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
# OpenAI's stream: an error is an ordinary event, and `[DONE]` is the end.
SSE = StreamFormat(
    headers=[(b"content-type", b"text/event-stream; charset=utf-8"), *_UNBUFFERED],
    payload=_event,
    error=_event,
    end=b"data: [DONE]\n\n",
    comment=_comment,
)
# For /chat/sse: an error is an event with the name `error`.
SSE_NAMED_ERRORS = replace(SSE, error=_error_event)
# For /chat/stream: newline-delimited JSON; an error is the last line.
JSON_LINES = StreamFormat(
    headers=[(b"content-type", b"application/json"), *_UNBUFFERED],
    payload=_line,
    error=_error_line,
)


class Renderer(Protocol):
    """One protocol's words for events. Payloads are JSON objects."""

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


class ProtocolNames:
    """Errors raised in the `with` get the field names that the caller knows, in their messages."""

    __slots__ = ("_names",)

    def __init__(self, names: Callable[[], Mapping[str, str]]) -> None:
        """names: such as Renderer.field_names; called after an error only."""
        self._names = names

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, ProxyError) or error.param is None:
            return
        if (name := self._names().get(error.param)) is not None:
            error.message = error.message.replace(f"'{error.param}'", f"'{name}'")
            error.param = name
