"""Ignores requests to upgrade to anything but a WebSocket. Used by `slow_senders`.

Java's HTTP client asks for h2c with its first request. A server that does not support a protocol
continues in HTTP/1.1 (RFC 9110, 7.8), but httptools then skips the request's body and parses it
as the next request.
"""

from __future__ import annotations

from httptools import HttpParserUpgrade, HttpRequestParser
from typing_extensions import Buffer
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class WebSocketUpgradesOnly(HttpToolsProtocol):
    """A request for a WebSocket during a response ends the connection."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.parser = _Parser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    @property
    def is_to_be_read_again(self) -> bool:
        """Whether the parser has stopped after a head with an upgrade that we ignore.

        CONNECT stops it, too, but has neither these fields nor a body.
        """
        return self.parser.should_upgrade() and self._get_upgrade() not in (None, b"websocket")

    def without_upgrade(self) -> bytes:
        """The last head, without its Upgrade field."""
        fields = (b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        version = self.parser.get_http_version().encode()
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)
        return line + b"".join(fields) + b"\r\n"

    def on_headers_complete(self) -> None:
        if not self.is_to_be_read_again:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.is_to_be_read_again:
            super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Refused during a response, which could not learn then that its client disconnects."""
        if self.cycle is None or self.cycle.response_complete:
            super().handle_websocket_upgrade()
        else:
            self.transport.close()


class _Parser(HttpRequestParser):
    def __init__(self, protocol: WebSocketUpgradesOnly) -> None:
        super().__init__(protocol)
        self._protocol = protocol

    def feed_data(self, data: Buffer) -> None:
        unread = memoryview(data)
        while True:
            try:
                super().feed_data(unread)
                return
            except HttpParserUpgrade as stopped:
                if not self._protocol.is_to_be_read_again:
                    raise
                unread = unread[stopped.args[0] :]
            super().feed_data(self._protocol.without_upgrade())
