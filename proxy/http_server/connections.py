"""What uvicorn makes of a connection: its own protocols, with bounds. Called by `front`."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from triton_openai.proxy.api.bodies.bytes_in_flight import BytesInFlight
from triton_openai.proxy.http_server.draining import DrainingWebSocket
from triton_openai.proxy.http_server.incoming import BoundedIncoming
from triton_openai.proxy.http_server.messages import BoundedMessages
from triton_openai.proxy.http_server.old_clients import UnchunkedForOldClients
from triton_openai.proxy.http_server.patience import PatientWriting


def http(
    *, reader_timeout_s: float, sender_timeout_s: float, body_timeout_s: float, most: int
) -> type[HttpToolsProtocol]:
    """For uvicorn.Config. `most`: connections at once, WebSockets among them."""
    limits = {
        "patience_s": reader_timeout_s,
        "request_timeout_s": sender_timeout_s,
        "body_timeout_s": body_timeout_s,
        "most_connections": most,
    }
    return type("BoundedHttp", (PatientWriting, UnchunkedForOldClients, BoundedIncoming), limits)


def websockets(
    *, reader_timeout_s: float, message_timeout_s: float, in_flight: BytesInFlight
) -> type[DrainingWebSocket]:
    """For uvicorn.Config. `message_timeout_s`: from a message's first byte to its last."""
    limits = {
        "patience_s": reader_timeout_s,
        "message_timeout_s": message_timeout_s,
        "in_flight": in_flight,
    }
    return type("BoundedSocket", (PatientWriting, BoundedMessages, DrainingWebSocket), limits)
