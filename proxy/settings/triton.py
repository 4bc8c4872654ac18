"""Triton, its models, and the packages that builds need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import FilePath, model_validator

from build_engines.section import ModelName
from proxy.settings.group import Group, Port, Seconds, Secret, secret_value

TRITON_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")


class TritonServer(Group):
    """The tritonserver that is started here, or the remote one"""

    triton_url: str | None = None
    """Address of a remote Triton for `triton-openai proxy`: `grpc://host:port`, or `grpcs://` for
    TLS; several with commas between them, or where they are found, such as
    `dns+grpc://name:port`. Without it: `TRITON_GRPC_PORT` of this machine. Set it where Triton runs
    elsewhere."""
    triton_routing: Literal["prefix", "least_outstanding", "random", "round_robin"] = "prefix"
    """How one of several endpoints is chosen: `prefix` is the one with the least work after it has
    done the request's, with what it has in its prefix cache counted as done. Change it where
    prompts share no beginnings."""
    triton_ca_file: FilePath | None = None
    """PEM file with the certificate authorities to trust for `grpcs://`. Without it: the system's.
    Set it for certificates of your own."""
    triton_secret: Secret = None
    """Value that opens Triton's administrative calls: 16 to 256 letters, digits, `-` and `_`. A
    proxy in another process needs the same value. Without it: a new one for each start. Set it
    where the proxy and Triton start apart."""
    triton_connection_age_s: Seconds | None = None
    """After this time a new connection to Triton takes over, so that servers which were added
    behind one address get work. The old one ends with its last stream. Without it: never. Set it
    where a load balancer stands before Triton."""
    triton_host: Literal["127.0.0.1", "0.0.0.0"] = "127.0.0.1"
    """Address on which the tritonserver that is started here listens. Triton has no access control:
    use `0.0.0.0` in a container only."""
    triton_grpc_port: Port = 8001
    """gRPC port of the tritonserver that is started here. Change it where another program has
    it."""
    triton_http_port: Port | None = None
    """HTTP port of that tritonserver, on loopback only and behind `TRITON_SECRET`. Without it HTTP
    is off. Set it for tools that speak HTTP with Triton."""
    triton_metrics_port: Port = 8002
    """Port of that tritonserver's Prometheus metrics. Change it where another program has it."""
    triton_start_timeout_s: Seconds = 120.0
    """How long a start may go without progress until every model is loaded: its processes use CPU
    time, read files or start others, or its log grows. A start that moves may take 15 minutes
    longer; one that stands still for 10 seconds begins again, twice at most. Raise it for
    large models and slow disks."""

    probe_every_s: Seconds | None = None
    """A model that has sent no token for so long is asked for some, at each endpoint: an engine can
    be dead while its Triton says that it is ready. Without it: only when an endpoint becomes ready,
    and after it lost a stream. Set it to how long a dead engine may go unnoticed, less the next."""
    probe_timeout_s: Seconds = 10.0
    """How long such an answer may take; after that the endpoint gets no streams of the model, and
    those it has move to another one. Raise it for engines with long prefills."""

    @model_validator(mode="after")
    def _secret_is_long_and_plain(self) -> TritonServer:
        """It is part of an option of tritonserver and a header; the message does not show it."""
        if self.triton_secret and not TRITON_SECRET.fullmatch(self.triton_secret_value or ""):
            raise ValueError(
                "TRITON_SECRET must have 16 to 256 letters, digits, '-' and '_' (such as "
                '`python3 -c "import secrets; print(secrets.token_urlsafe())"` prints)'
            )
        return self

    @model_validator(mode="after")
    def _ca_file_has_tls(self) -> TritonServer:
        if self.triton_ca_file is not None and not self.triton_is_tls:
            raise ValueError(
                f"TRITON_CA_FILE={self.triton_ca_file} is for TLS: TRITON_URL must be "
                "grpcs://host:port with it"
            )
        return self

    @property
    def triton_source(self) -> str:
        """Where Triton's endpoints are found."""
        url = self.triton_url or f"127.0.0.1:{self.triton_grpc_port}"
        return url if "://" in url else f"grpc://{url}"

    @property
    def triton_target(self) -> str:
        """For people, without a password; of one endpoint its `host:port`."""
        scheme, _, rest = self.triton_source.partition("://")
        place = rest.rpartition("@")[2]
        return place if scheme in ("grpc", "grpcs") else f"{scheme}://{place}"

    @property
    def triton_secret_value(self) -> str | None:
        return secret_value(self.triton_secret)

    @property
    def triton_is_tls(self) -> bool:
        return self.triton_source.partition("://")[0].endswith("grpcs")


class ModelSource(Group):
    """Models and files"""

    models_file: Path = Path("models.yaml")
    """The file that names the models. Set it where the file is elsewhere."""
    model_path: Path | None = None
    """One model folder to serve instead of a models file; `MODELS_FILE` may not be set with it. For
    a first try of a model."""
    model_id: ModelName | None = None
    """Public name of the model of `MODEL_PATH`. Without it: architecture and size, as the path, the
    graph's file name or the config have them, such as `phi-3.5-mini`. Set it where callers expect a
    certain name."""
    artifacts_dir: Path = Path("artifacts")
    """Where `build` writes. If the default folder belongs to another user, what you may not write
    goes to `~/.local/share/triton-openai` (`XDG_DATA_HOME`). Set it to a disk with room for the
    models."""

    @model_validator(mode="after")
    def _one_source_of_models(self) -> ModelSource:
        if self.model_path is not None and "models_file" in self.model_fields_set:
            raise ValueError(
                "MODELS_FILE and MODEL_PATH both say what to serve: set one of them (a folder "
                "can stand in a models file, too)"
            )
        if self.model_path is None and self.model_id is not None:
            raise ValueError("MODEL_ID names the model of MODEL_PATH, which is not set")
        return self
