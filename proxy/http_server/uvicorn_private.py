"""The undocumented parts of uvicorn and websockets that this package overrides or uses.

For people who change a module here or raise a version, and for the test of the same name, which
compares this list with the installed packages and with our source. pyproject.toml pins the series
that the list was written for. `name(parameters)` is a method, a bare `name` an attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HTTP = "uvicorn.protocols.http.httptools_impl"
WEBSOCKET = "uvicorn.protocols.websockets.websockets_sansio_impl"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateClass:
    """One class of theirs. Each name has the reason why it is overridden or used."""

    module: str
    name: str
    overridden: Mapping[str, str] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)


SERIES = {"uvicorn": "0.54", "websockets": "16"}
CLASSES = (
    PrivateClass(
        module=HTTP,
        name="HttpToolsProtocol",
        overridden={
            "__init__(config, server_state, app_state, _loop)": "upgrades: another parser",
            "connection_made(transport)": "joined_writes; slow_senders: clocks, and their number",
            "connection_lost(exc)": "all clocks stop; disconnects: notifies every waiting request",
            "data_received(data)": "slow_senders: counts the bytes of a head; lingering: discards",
            "eof_received()": "disconnects: who closed one side may still read; joined_writes",
            "pause_writing()": "slow_readers: the clock for a slow reader starts",
            "resume_writing()": "slow_readers: the clock for a slow reader stops",
            "on_message_begin()": "a new head: its clock and its sizes",
            "on_url(url)": "parsing_limits: length",
            "on_header(name, value)": "parsing_limits: number and size",
            "on_headers_complete()": "all HTTP limits: the head is complete",
            "on_body(body)": "parsing_limits: small pieces; slow_senders: the clock starts again",
            "on_message_complete()": "upgrades: not yet; slow_senders: the clock stops; lingering",
            "on_response_complete()": "slow_senders: the clock of the next request",
            "handle_websocket_upgrade()": "upgrades: refuses some; slow_senders: clocks stop",
            "send_400_response(msg)": "parsing_limits: our body and status, and a lingering close",
            "_start_asgi_task(cycle, app)": "disconnects: the request that is answered; http10",
        },
        used={
            "_get_upgrade()": "upgrades: the protocol that the client asks for",
            "client": "log lines",
            "connections": "slow_senders: how many there are",
            "cycle": "the last request and its response",
            "flow": "whether reading is paused",
            "headers": "of the head so far",
            "loop": "clocks",
            "parser": "upgrades: replaced; host_field: the HTTP version",
            "pipeline": "parsing_limits: requests that wait",
            "server_state": "parsing_limits: the default headers of a response",
            "transport": "closed, aborted, written to",
            "url": "parsing_limits: length; upgrades: the head written again",
        },
    ),
    PrivateClass(
        module=HTTP,
        name="RequestResponseCycle",
        used={
            "chunked_encoding": "http10: set to False for HTTP/1.0",
            "disconnected": "disconnects: set for the request that is being answered",
            "expected_content_length": "http10: set to each piece's length",
            "keep_alive": "disconnects: cleared when the client closed its side",
            "message_event": "disconnects: set with `disconnected`",
            "more_body": "whether the request's body has ended",
            "response_complete": "whether the response has ended",
            "response_started": "whether the response has begun",
            "scope": "the HTTP version and path",
            "transport": "replaced by an object with TRANSPORT_METHODS: lingering, disconnects",
        },
    ),
    PrivateClass(
        module="uvicorn.protocols.http.flow_control",
        name="FlowControl",
        used={
            "read_paused": "slow_senders: a client is not late while we do not read",
            "resume_reading()": "lingering: reads, and discards, the rest",
        },
    ),
    PrivateClass(
        module=WEBSOCKET,
        name="WebSocketsSansIOProtocol",
        overridden={
            "connection_made(transport)": "websocket_limits: counts frames from the start",
            "connection_lost(exc)": "websocket_limits, slow_readers: clocks stop; memory is freed",
            "data_received(data)": "websocket_limits: the clock of a message, and its bytes",
            "pause_writing()": "slow_readers: the clock for a slow reader starts",
            "resume_writing()": "slow_readers: the clock for a slow reader stops",
            "shutdown()": "draining: the application closes an open socket",
            "receive()": "websocket_limits: the bytes of a message that the application took",
            "send_receive_event_to_app()": "websocket_limits: the size of a whole message",
            "handle_ping()": "websocket_limits: no pongs for a client that does not read",
        },
        used={
            "client": "log lines",
            "close_sent": "whether the closing handshake has begun",
            "conn": "the protocol of `websockets`",
            "frames": "websocket_limits: pieces of the message that arrives; emptied at the end",
            "handle_parser_exception()": "websocket_limits: sends the close frame",
            "handshake_complete": "draining: whether the socket is open",
            "loop": "clocks",
            "queue": "websocket_limits: whether a message became an event",
            "read_paused": "websocket_limits: a client is not late while we do not read",
            "transport": "closed and aborted",
            "writable": "websocket_limits: whether the client reads",
        },
    ),
    PrivateClass(
        module="uvicorn.server",
        name="Server",
        overridden={
            "__init__(config)": "uvicorn_server: its listener for TLS",
            "startup(sockets)": "uvicorn_server: opens the listener for TLS",
            "shutdown(sockets)": "draining: accepts first; uvicorn_server: closes the listener",
            "capture_signals()": "uvicorn_server: signals are handled by processes.signals",
        },
        used={
            "config": "connecting: the class for a connection",
            "force_exit": "uvicorn_server: when it is hurried",
            "lifespan": "uvicorn_server: its shutdown when it is hurried; connecting: its state",
            "serve(sockets)": "uvicorn_server: returns when the streams have ended",
            "server_state": "uvicorn_server: running tasks; connecting: given to each connection",
            "servers": "draining: closed before the connections",
            "should_exit": "uvicorn_server: begins to drain",
            "started": "uvicorn_server: whether the application started",
        },
    ),
    PrivateClass(
        module="uvicorn.server",
        name="ServerState",
        used={
            "default_headers": "parsing_limits: the date, in a refusal",
            "tasks": "uvicorn_server: cancelled when it is hurried",
        },
    ),
    PrivateClass(
        module="uvicorn.config",
        name="Config",
        used={
            "backlog": "tls_listener: of the socket",
            "http_protocol_class": "connecting: made for each connection",
        },
    ),
    PrivateClass(
        module="uvicorn.lifespan.on",
        name="LifespanOn",
        used={
            "shutdown()": "uvicorn_server: uvicorn omits it when it is hurried",
            "state": "connecting: given to each connection",
        },
    ),
    PrivateClass(
        module="websockets.protocol",
        name="Protocol",
        used={
            "current_size": "websocket_limits: bytes of the message that arrives",
            "fail(code, reason)": "websocket_limits: ends the connection with a status",
            "parser": "websocket_limits: closed, since it holds the last frame",
            "reader": "websocket_limits: bytes of an incomplete frame",
            "recv_frame(frame)": "websocket_limits: replaced, to count frames",
        },
    ),
    PrivateClass(
        module="websockets.streams",
        name="StreamReader",
        used={"buffer": "websocket_limits: counted, and emptied at the end"},
    ),
)
# Other names that are imported.
IMPORTED = {
    "uvicorn.middleware.proxy_headers.ProxyHeadersMiddleware": "forwarded: inside of our own",
    f"{HTTP}.STATUS_LINE": "the status line of a response, by number",
    "uvicorn._types.ASGIReceiveEvent": "the type of what `receive` returns",
    "websockets.exceptions.ProtocolError": "raised in `recv_frame`, ends the connection",
    "websockets.frames.Frame": "what `recv_frame` gets",
    "websockets.frames.Opcode": "of a frame",
}
# The methods that RequestResponseCycle calls on its transport, for which we have stand-ins.
TRANSPORT_METHODS = frozenset({"write", "is_closing", "close"})
