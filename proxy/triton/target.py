"""The address of Triton's gRPC port, its TLS settings and its secret, and a channel to it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import grpc

# The key of tritonserver's --grpc-restricted-protocol and --http-restricted-api. gRPC's header of
# it has a prefix, HTTP's has none.
RESTRICTED_KEY = "triton-openai"
RESTRICTED_HEADER = f"triton-grpc-protocol-{RESTRICTED_KEY}"


# A longer response ends its stream with RESOURCE_EXHAUSTED.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # in effect the timeout of one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class Target:
    """address: `host:port`. ca_file: PEM, trusted instead of the system's certificates.

    secret: gives access to the protocols that our launcher restricts in Triton. certified_name: the
    name that its certificate must have; None for the address' host.
    """

    address: str
    is_tls: bool = False
    ca_file: Path | None = None
    secret: str | None = field(default=None, repr=False)
    certified_name: str | None = None

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def head(self) -> tuple[tuple[str, str], ...]:
        """The pseudo-headers of every HTTP/2 request, except the path."""
        return (
            (":method", "POST"),
            (":scheme", "https" if self.is_tls else "http"),
            (":authority", self.address),
        )

    @property
    def restricted_metadata(self) -> tuple[tuple[str, str], ...]:
        """The gRPC metadata for a call to a restricted protocol."""
        return () if self.secret is None else ((RESTRICTED_HEADER, self.secret),)

    def tls(self) -> ssl.SSLContext | None:
        """The context for connections, or None without TLS. Reads the file; offers h2 only."""
        if not self.is_tls:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        context.set_alpn_protocols(["h2"])
        return context


def channel(target: Target) -> grpc.aio.Channel:
    """For unary calls of grpc.aio. Bound to the running event loop; connects when it is needed."""
    if not target.is_tls:
        return grpc.aio.insecure_channel(target.address, options=OPTIONS)
    trusted = None if target.ca_file is None else target.ca_file.read_bytes()
    credentials = grpc.ssl_channel_credentials(root_certificates=trusted)
    options: tuple[tuple[str, int | str], ...] = OPTIONS
    if target.certified_name is not None:
        options += (("grpc.ssl_target_name_override", target.certified_name),)
    return grpc.aio.secure_channel(target.address, credentials, options=options)
