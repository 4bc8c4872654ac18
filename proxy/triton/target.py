"""Where Triton's gRPC port is, and how it is spoken to."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

# The key of tritonserver's --grpc-restricted-protocol and --http-restricted-api. Over gRPC its
# header has this prefix, over HTTP none.
RESTRICTED_KEY = "triton-openai"
RESTRICTED_HEADER = f"triton-grpc-protocol-{RESTRICTED_KEY}"


@dataclass(frozen=True, slots=True)
class Target:
    """`address`: `host:port`. `ca_file`: PEM, trusted in place of the system's certificates.

    `secret`: opens the protocols that a Triton started by our launcher restricts.
    """

    address: str
    is_tls: bool = False
    ca_file: Path | None = None
    secret: str | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def head(self) -> tuple[tuple[str, str], ...]:
        """What every HTTP/2 request to it begins with, but for the path."""
        return (
            (":method", "POST"),
            (":scheme", "https" if self.is_tls else "http"),
            (":authority", self.address),
        )

    @property
    def restricted_metadata(self) -> tuple[tuple[str, str], ...]:
        """gRPC metadata for a call to a restricted protocol."""
        return () if self.secret is None else ((RESTRICTED_HEADER, self.secret),)

    def tls(self) -> ssl.SSLContext | None:
        """Reads the file. Offers h2 alone."""
        if not self.is_tls:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        context.set_alpn_protocols(["h2"])
        return context
