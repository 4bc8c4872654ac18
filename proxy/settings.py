"""The only reader of the environment: every setting, its default, its unit.

A value that does not parse stops the start with the name of the variable. Called by `cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Settings(BaseSettings):
    """Each field is read from the environment variable of the same name in capitals."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_file=None)

    # where the proxy listens
    host: str = "127.0.0.1"
    port: Port = 9000

    # the embedded tritonserver (loopback only), or the remote one that `proxy --triton` names
    triton_grpc_port: Port = 8001
    triton_http_port: Port = 8000
    triton_metrics_port: Port = 8002
    triton_url: str | None = None

    # files
    models_file: Path = Path("models.yaml")
    artifacts_dir: Path = Path("artifacts")

    # limits
    request_timeout_s: Seconds = 600.0
    drain_timeout_s: Seconds = 30.0
    triton_start_timeout_s: Seconds = 120.0
    max_request_size_mb: Annotated[float, Field(gt=0, le=1024)] = 10.0

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"  # auto: text on a terminal

    @property
    def max_request_bytes(self) -> int:
        return int(self.max_request_size_mb * 1_000_000)

    @property
    def triton_target(self) -> str:
        """gRPC target, `host:port`."""
        return (self.triton_url or f"127.0.0.1:{self.triton_grpc_port}").removeprefix("grpc://")
