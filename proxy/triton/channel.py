"""The channel of grpc.aio to one Triton server, for unary calls."""

from __future__ import annotations

import grpc

from proxy.triton.streams.link import MAX_RESPONSE_BYTES
from proxy.triton.target import Target

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # in effect the timeout of one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)


def channel(target: Target) -> grpc.aio.Channel:
    """Bound to the running event loop. Connects when it is needed."""
    if not target.is_tls:
        return grpc.aio.insecure_channel(target.address, options=OPTIONS)
    trusted = None if target.ca_file is None else target.ca_file.read_bytes()
    credentials = grpc.ssl_channel_credentials(root_certificates=trusted)
    options: tuple[tuple[str, int | str], ...] = OPTIONS
    if target.certified_name is not None:
        options += (("grpc.ssl_target_name_override", target.certified_name),)
    return grpc.aio.secure_channel(target.address, credentials, options=options)
