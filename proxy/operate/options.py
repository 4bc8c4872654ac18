"""The options that several commands share. Used by `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def option(text: str, variable: str, default: str) -> Any:
    """An option whose help names its environment variable; `settings` alone reads the variable."""
    return typer.Option(help=f"{text} Variable: {variable}.", show_default=default)


Host = Annotated[str | None, option("Address the proxy listens on.", "HOST", "127.0.0.1")]
Port = Annotated[int | None, option("Port the proxy listens on.", "PORT", "9000")]
GrpcPort = Annotated[
    int | None, option("gRPC port of the tritonserver.", "TRITON_GRPC_PORT", "8001")
]
HttpPort = Annotated[
    int | None, option("HTTP port of the tritonserver.", "TRITON_HTTP_PORT", "off")
]
MetricsPort = Annotated[
    int | None, option("Metrics port of the tritonserver.", "TRITON_METRICS_PORT", "8002")
]
Models = Annotated[Path | None, option("Models file.", "MODELS_FILE", "models.yaml")]
Artifacts = Annotated[Path | None, option("Build folder.", "ARTIFACTS_DIR", "artifacts")]
