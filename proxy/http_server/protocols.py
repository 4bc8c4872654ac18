"""The classes of connections: uvicorn's, with our limits. Called by `uvicorn_server`."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from triton_openai.proxy.api.bodies.bytes_in_flight import BytesInFlight
from triton_openai.proxy.http_server.draining import DrainingWebSocket
from triton_openai.proxy.http_server.http10 import UnchunkedHttp10
from triton_openai.proxy.http_server.joined_writes import JoinedWrites
from triton_openai.proxy.http_server.slow_readers import SlowReaderLimit
from triton_openai.proxy.http_server.slow_senders import SlowSenderLimits
from triton_openai.proxy.http_server.websocket_limits import WebSocketLimits


def http(
    *, reader_timeout_s: float, sender_timeout_s: float, body_timeout_s: float, most: int
) -> type[HttpToolsProtocol]:
    """For uvicorn.Config. most: concurrent connections, including WebSockets."""
    limits = {
        "reader_timeout_s": reader_timeout_s,
        "request_timeout_s": sender_timeout_s,
        "body_timeout_s": body_timeout_s,
        "most_connections": most,
    }
    bases = (JoinedWrites, SlowReaderLimit, UnchunkedHttp10, SlowSenderLimits)
    return type("BoundedHttp", bases, limits)


def websockets(
    *, reader_timeout_s: float, message_timeout_s: float, in_flight: BytesInFlight
) -> type[DrainingWebSocket]:
    """For uvicorn.Config. message_timeout_s: from a message's first byte to its last."""
    limits = {
        "reader_timeout_s": reader_timeout_s,
        "message_timeout_s": message_timeout_s,
        "in_flight": in_flight,
    }
    return type("BoundedSocket", (SlowReaderLimit, WebSocketLimits, DrainingWebSocket), limits)
