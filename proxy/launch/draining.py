"""WebSockets under uvicorn that end by themselves when the server stops, as HTTP responses do."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class DrainingWebSocket(WebSocketsSansIOProtocol):
    """The application closes it, once its requests have ended (api.openai.socket)."""

    def shutdown(self) -> None:
        """Called by uvicorn, which would close it at once; then it waits for the drain's time."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
