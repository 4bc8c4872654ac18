"""What this package overrides and uses of uvicorn and websockets that neither promises to keep.

Read by people who change a module here or raise a version, and by the test of the same name: it
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
            "connection_made(transport)": "incoming: the clock starts; too many connections",
            "connection_lost(exc)": "all clocks stop; hang_ups: every waiting request hears of it",
            "data_received(data)": "incoming: counts the bytes of a head; lingering: discards",
            "eof_received()": "hang_ups: a client that closed one side may still read",
            "pause_writing()": "patience: the clock for a slow reader starts",
            "resume_writing()": "patience: the clock for a slow reader stops",
            "on_message_begin()": "a new head: its clock and its sizes",
            "on_url(url)": "parsing_limits: length",
            "on_header(name, value)": "parsing_limits: number and size",
            "on_headers_complete()": "host_field, upgrades, parsing_limits, lingering, incoming",
            "on_body(body)": "parsing_limits: small pieces; incoming: the clock starts again",
            "on_message_complete()": "upgrades: not yet; incoming: the clock stops; lingering",
            "on_response_complete()": "incoming: the clock of the request behind it",
            "handle_websocket_upgrade()": "upgrades: not amid an answer; incoming: clocks stop",
            "send_400_response(msg)": "parsing_limits: our body and status, and a lingering close",
            "_start_asgi_task(cycle, app)": "hang_ups: who is answered; old_clients: no chunks",
        },
        used={
            "_get_upgrade()": "upgrades: the protocol that the client asks for",
            "client": "log lines",
            "connections": "incoming: how many there are",
            "cycle": "the last request and its response",
            "flow": "whether reading is paused",
            "headers": "of the head so far",
            "loop": "clocks",
            "parser": "upgrades: replaced; host_field: the HTTP version",
            "pipeline": "parsing_limits: requests that wait",
            "server_state": "parsing_limits: the default headers of an answer",
            "transport": "closed, aborted, written to",
            "url": "parsing_limits: length; upgrades: the head written again",
        },
    ),
    PrivateClass(
        module=HTTP,
        name="RequestResponseCycle",
        used={
            "chunked_encoding": "old_clients: set to False for HTTP/1.0",
            "disconnected": "hang_ups: set for the request under way",
            "expected_content_length": "old_clients: set to each piece's length",
            "keep_alive": "hang_ups: cleared when the client closed its side",
            "message_event": "hang_ups: set with `disconnected`",
            "more_body": "whether the request's body has ended",
            "response_complete": "whether the response has ended",
            "response_started": "whether the response has begun",
            "scope": "the HTTP version and path",
            "transport": "replaced by an object with TRANSPORT_METHODS: lingering, hang_ups",
        },
    ),
    PrivateClass(
        module="uvicorn.protocols.http.flow_control",
        name="FlowControl",
        used={
            "read_paused": "incoming: a client is not late while we do not read",
            "resume_reading()": "lingering: what still comes is discarded",
        },
    ),
    PrivateClass(
        module=WEBSOCKET,
        name="WebSocketsSansIOProtocol",
        overridden={
            "connection_made(transport)": "messages: counts frames from the first one on",
            "connection_lost(exc)": "messages, patience: clocks stop, memory is given back",
            "data_received(data)": "messages: the clock of a message, and its bytes",
            "pause_writing()": "patience: the clock for a slow reader starts",
            "resume_writing()": "patience: the clock for a slow reader stops",
            "shutdown()": "draining: the application closes an open socket",
            "receive()": "messages: the bytes of a message that the application took",
            "send_receive_event_to_app()": "messages: the size of a whole message",
            "handle_ping()": "messages: no pongs for a client that does not read",
        },
        used={
            "client": "log lines",
            "close_sent": "whether the closing handshake has begun",
            "conn": "the protocol of `websockets`",
            "frames": "messages: pieces of the message that arrives; emptied at the end",
            "handle_parser_exception()": "messages: sends the close frame",
            "handshake_complete": "draining: whether the socket is open",
            "loop": "clocks",
            "queue": "messages: whether a message became an event",
            "read_paused": "messages: a client is not late while we do not read",
            "transport": "closed and aborted",
            "writable": "messages: whether the client reads",
        },
    ),
    PrivateClass(
        module="uvicorn.server",
        name="Server",
        overridden={
            "__init__(config)": "front: what it tells, and where connections come from",
            "startup(sockets)": "front: says that it listens",
            "shutdown(sockets)": "draining: accepts what has connected; front: closes the intake",
            "capture_signals()": "front: signals are handled by processes.signals",
        },
        used={
            "config": "intake: the class for a connection",
            "force_exit": "front: hurries",
            "lifespan": "front: its shutdown when hurried; intake: its state",
            "serve(sockets)": "front: returns when the streams have ended",
            "server_state": "front: running tasks; intake: open connections",
            "servers": "draining: closed before the connections",
            "should_exit": "front: begins to drain",
            "started": "front: whether the application started",
        },
    ),
    PrivateClass(
        module="uvicorn.server",
        name="ServerState",
        used={
            "connections": "intake: replaced by a set that reports its size",
            "default_headers": "parsing_limits: the date, in a refusal",
            "tasks": "front: cancelled when hurried",
        },
    ),
    PrivateClass(
        module="uvicorn.config",
        name="Config",
        used={"http_protocol_class": "intake: made for each connection that is handed over"},
    ),
    PrivateClass(
        module="uvicorn.lifespan.on",
        name="LifespanOn",
        used={
            "shutdown()": "front: uvicorn leaves it out when hurried",
            "state": "intake: given to each connection",
        },
    ),
    PrivateClass(
        module="websockets.protocol",
        name="Protocol",
        used={
            "current_size": "messages: bytes of the message that arrives",
            "fail(code, reason)": "messages: ends the connection with a status",
            "parser": "messages: closed, since it holds the last frame",
            "reader": "messages: bytes that are no frame yet",
            "recv_frame(frame)": "messages: replaced, to count frames",
        },
    ),
    PrivateClass(
        module="websockets.streams",
        name="StreamReader",
        used={"buffer": "messages: counted, and emptied at the end"},
    ),
)
# Names that are imported beside the classes above.
IMPORTED = {
    f"{HTTP}.STATUS_LINE": "the status line of an answer, by number",
    "uvicorn._types.ASGIReceiveEvent": "the type of what `receive` returns",
    "websockets.exceptions.ProtocolError": "raised in `recv_frame`, ends the connection",
    "websockets.frames.Frame": "what `recv_frame` gets",
    "websockets.frames.Opcode": "of a frame",
}
# All that RequestResponseCycle does with its transport: lingering and hang_ups stand in for it.
TRANSPORT_METHODS = frozenset({"write", "is_closing", "close"})
# All that uvicorn does to change `connections`: intake's set overrides these.
CONNECTIONS_METHODS = frozenset({"add", "discard", "remove"})
