"""What uvicorn makes of a connection: its own protocols, with bounds. Called by `front`."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.launch.draining import DrainingWebSocket
from proxy.launch.incoming import BoundedIncoming
from proxy.launch.old_clients import UnchunkedForOldClients
from proxy.launch.patience import PatientWriting


def http(*, reader_timeout_s: float, sender_timeout_s: float, most: int) -> type[HttpToolsProtocol]:
    """For uvicorn.Config. `most`: connections at once, WebSockets among them."""
    limits = {
        "patience_s": reader_timeout_s,
        "request_timeout_s": sender_timeout_s,
        "most_connections": most,
    }
    return type("BoundedHttp", (PatientWriting, UnchunkedForOldClients, BoundedIncoming), limits)


def websockets(*, reader_timeout_s: float) -> type[DrainingWebSocket]:
    """For uvicorn.Config."""
    limits = {"patience_s": reader_timeout_s}
    return type("BoundedSocket", (PatientWriting, DrainingWebSocket), limits)
