"""Where Triton's gRPC port is, and how it is spoken to."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """`address`: `host:port`. `ca_file`: PEM, whom to trust in place of the system's list."""

    address: str
    is_tls: bool = False
    ca_file: Path | None = None

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

    def tls(self) -> ssl.SSLContext | None:
        """Reads the file. Offers h2 alone."""
        if not self.is_tls:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        context.set_alpn_protocols(["h2"])
        return context
