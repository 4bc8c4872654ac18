"""The only reader of the environment: every setting, its default, its unit.

A value that does not parse stops the start with the name of the variable. Called by `cli`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    FilePath,
    SecretStr,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from triton_openai.build_engines.section import ModelName

Port = Annotated[int, Field(ge=1, le=65535)]
AtMost = Annotated[int, Field(ge=1, le=1_000_000)]
Tokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]

ControlTokens = Literal["plain", "special"]
CpuScheduling = Literal["auto", "batch", "normal"]
ReasoningField = Literal["reasoning", "reasoning_content"]
REASONING_FIELDS: tuple[ReasoningField, ...] = ("reasoning", "reasoning_content")
OTHER_NAMES = {"port": "server_port", "host": "server_host"}
ONE_FOLDER_REQUESTS = 10
TRITON_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
HOST = re.compile(r"\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s,*]+")


def environment() -> Mapping[str, str]:
    """For the variables that models.yaml names."""
    return os.environ


class Settings(BaseSettings):
    """Each field is read from the environment variable of the same name in capitals."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_file=None)

    # where the proxy listens; SERVER_HOST and SERVER_PORT are other names of HOST and PORT
    server_host: str | None = None
    server_port: Port | None = None
    host: str = "127.0.0.1"
    port: Port = 9000
    workers: Annotated[int, Field(ge=1, le=64)] = 1  # processes of the proxy, on one socket
    # auto: batch on four cores and fewer, see launch/scheduling.py
    cpu_scheduling: CpuScheduling = "auto"
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()  # `*`, or origins between commas
    # names of this server besides IP addresses and names that no public DNS has; `*` for all
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()

    # the tritonserver that is started here, or the remote one that `proxy --triton` names
    triton_host: Literal["127.0.0.1", "0.0.0.0"] = "127.0.0.1"  # it has no access control
    triton_grpc_port: Port = 8001
    triton_http_port: Port | None = None  # on loopback only, and restricted; None: HTTP is off
    triton_metrics_port: Port = 8002
    triton_url: str | None = None  # grpc://host:port, or grpcs:// for TLS
    triton_ca_file: FilePath | None = None  # PEM, in place of the system's certificates
    # opens what the launcher restricts in Triton; None: the launcher makes one for each start
    triton_secret: SecretStr | None = None
    # token streams: our own HTTP/2 reader, or grpc.aio; all other calls go over grpc.aio
    triton_transport: Literal["lean", "grpc"] = "lean"
    triton_connection_age_s: Seconds | None = None  # then another takes over; lean only

    # files; MODEL_PATH is one model folder, served as MODEL_ID without a models file
    model_path: Path | None = None
    model_id: ModelName | None = None
    models_file: Path = Path("models.yaml")
    artifacts_dir: Path = Path("artifacts")

    # what a request gets that does not say otherwise, where models.yaml has nothing for its model
    default_max_tokens: Tokens | None = None
    default_temperature: Annotated[float, Field(ge=0, le=2)] | None = None

    # under which names a chat answer's reasoning is sent, between commas
    reasoning_fields: Annotated[tuple[ReasoningField, ...], NoDecode] = REASONING_FIELDS

    # control tokens in callers' texts: text as any other, or real ones, as a raw prompt's are
    callers_control_tokens: ControlTokens = "plain"

    # limits
    max_concurrent_requests: Annotated[int, Field(ge=1)] | None = None  # of all models together
    generations_per_row: AtMost = 16  # of a model: choices at once, for each row of its engine
    max_tokenizer_requests: AtMost = 32  # at once: /tokenize, /detokenize, /render, annotations
    # child processes that examine schemas and grammars, check answers, render long chats
    sandbox_processes: Annotated[int, Field(ge=1, le=64)] = 2
    sandbox_cpu_s: Annotated[float, Field(gt=0, le=600)] = 2.0  # of one call
    sandbox_memory_mb: Annotated[int, Field(ge=64, le=65_536)] = 512  # of one call
    max_priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0  # that callers may ask for
    max_copied_mb: Annotated[float, Field(gt=0, le=4096)] = 16.0  # prompt and guide x choices
    max_log_probs: AtMost = 250_000  # of an answer in one piece: choices x tokens x (1 + top)
    max_held_log_probs: Annotated[int, Field(ge=1)] = 1_000_000  # of all such answers, a process
    isolate_prefix_caches: bool = False  # callers share no cached prefix
    report_cached_tokens: bool = True  # in usage; they show what others have sent
    max_socket_requests: Annotated[int, Field(ge=1)] = 8  # at once on one WebSocket
    request_timeout_s: Seconds = 600.0
    # a request without a token whose Triton died is sent again so often; 0: it fails at once
    max_resends: Annotated[int, Field(ge=0, le=10)] = 2
    stall_timeout_s: Seconds = 120.0  # the engine may be silent so long, queueing included
    keep_alive_s: Seconds = 15.0  # a silent SSE stream gets a comment so often
    slow_reader_timeout_s: Seconds = 30.0  # so long a client may leave a full buffer unread
    slow_sender_timeout_s: Seconds = 60.0  # for a request's head; between two pieces of its body
    # longer than load balancers and clients keep theirs: who closes first must not be the server
    idle_connection_timeout_s: Seconds = 120.0
    drain_timeout_s: Seconds = 30.0
    triton_start_timeout_s: Seconds = 120.0
    request_body_timeout_s: Seconds = 60.0  # from a request's head to the end of its body
    max_request_size_mb: Annotated[float, Field(gt=0, le=1024)] = 2.0
    max_bodies_mb: Annotated[float, Field(gt=0, le=65_536)] = 48.0  # all bodies of one process
    max_json_values: AtMost = 200_000  # list items and object members of one body
    max_json_depth: Annotated[int, Field(ge=4, le=150)] = 100  # arrays and objects in each other
    max_stops: AtMost = 16  # stop strings, and stop token ids
    max_stop_bytes: AtMost = 4096  # of all stop strings together, in UTF-8
    max_messages: AtMost = 2048
    max_logit_bias: AtMost = 1024  # entries, and bad words
    max_allowed_token_ids: AtMost = 16_384
    max_choices: AtMost = 128  # prompts x candidates of one request
    # what one request may ask for; a model's own limits in models.yaml may be lower
    max_output_tokens: Tokens | None = None  # of a choice, the default too
    max_prompt_tokens: Tokens | None = None  # of each prompt, as the tokenizer counts them
    max_n: AtMost | None = None
    max_best_of: AtMost | None = None
    max_tools: AtMost = 128
    max_tools_bytes: AtMost = 256_000  # of all tools together, as JSON
    max_schema_bytes: AtMost = 256_000  # of one JSON Schema
    max_schema_depth: Annotated[int, Field(ge=1, le=128)] = 64  # in levels of JSON
    max_schema_properties: AtMost = 5_000
    max_grammar_bytes: AtMost = 256_000  # of one grammar in EBNF or Lark's syntax
    max_regex_bytes: AtMost = 16_384  # of one regular expression
    max_guided_choices: AtMost = 1_024  # texts of one list of choices
    max_guided_choices_bytes: AtMost = 65_536  # of all of them together

    loop_lag_warn_ms: Annotated[float, Field(ge=1, le=60_000)] = 50.0  # a longer lag is logged
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"  # auto: text on a terminal

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, given: Any) -> Any:
        """Both names may be set where they agree."""
        for name, other in OTHER_NAMES.items():
            if other not in given:
                continue
            if str(given.setdefault(name, given[other])) != str(given[other]):
                raise ValueError(
                    f"{name.upper()}={given[name]} and {other.upper()}={given[other]} are the same "
                    "setting: set one of them"
                )
        return given

    @field_validator("cors_origins", "allowed_hosts", "reasoning_fields", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        return tuple(item.strip() for item in given.split(",") if item.strip())

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is no origin such as https://example.com, and not *")
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not HOST.fullmatch(host):
                raise ValueError(f"{host!r} is no host name such as api.example.com, and not *")
        return hosts

    @model_validator(mode="after")
    def _one_source_of_models(self) -> Settings:
        if self.model_path is not None and "models_file" in self.model_fields_set:
            raise ValueError(
                "MODELS_FILE and MODEL_PATH both say what to serve: set one of them (a folder "
                "can stand in a models file, too)"
            )
        if self.model_path is None and self.model_id is not None:
            raise ValueError("MODEL_ID names the model of MODEL_PATH, which is not set")
        return self

    @model_validator(mode="after")
    def _secret_is_long_and_plain(self) -> Settings:
        """It is part of an option of tritonserver and a header; the message does not show it."""
        if self.triton_secret and not TRITON_SECRET.fullmatch(self.triton_secret_value or ""):
            raise ValueError(
                "TRITON_SECRET must have 16 to 256 letters, digits, '-' and '_' (such as "
                '`python3 -c "import secrets; print(secrets.token_urlsafe())"` prints)'
            )
        return self

    @field_serializer("triton_secret", when_used="json")
    def _secret_for_workers(self, secret: SecretStr | None) -> str | None:
        """Settings travel as JSON over the pipe between the launcher and its workers only."""
        return None if secret is None else secret.get_secret_value()

    @model_validator(mode="after")
    def _ca_file_has_tls(self) -> Settings:
        if self.triton_ca_file is not None and not self.triton_is_tls:
            raise ValueError(
                f"TRITON_CA_FILE={self.triton_ca_file} is for TLS: TRITON_URL must be "
                "grpcs://host:port with it"
            )
        return self

    @model_validator(mode="after")
    def _age_is_of_lean_connections(self) -> Settings:
        if self.triton_connection_age_s is not None and self.triton_transport != "lean":
            raise ValueError(
                f"TRITON_CONNECTION_AGE_S={self.triton_connection_age_s:g} goes with "
                f"TRITON_TRANSPORT=lean only, which is {self.triton_transport!r}"
            )
        return self

    @model_validator(mode="after")
    def _a_body_fits_among_all(self) -> Settings:
        if self.max_bodies_mb < self.max_request_size_mb:
            raise ValueError(
                f"MAX_BODIES_MB={self.max_bodies_mb:g} is less than one body of "
                f"MAX_REQUEST_SIZE_MB={self.max_request_size_mb:g}: raise it, or lower the other"
            )
        return self

    @property
    def concurrent_requests(self) -> int | None:
        """At most; None is no limit. One folder on one CPU has one by default, a registry none."""
        if self.max_concurrent_requests is None and self.model_path is not None:
            return ONE_FOLDER_REQUESTS
        return self.max_concurrent_requests

    @property
    def max_request_bytes(self) -> int:
        return int(self.max_request_size_mb * 1_000_000)

    @property
    def max_bodies_bytes(self) -> int:
        return int(self.max_bodies_mb * 1_000_000)

    @property
    def triton_target(self) -> str:
        """gRPC target, `host:port`."""
        url = self.triton_url or f"127.0.0.1:{self.triton_grpc_port}"
        return url.removeprefix("grpc://").removeprefix("grpcs://")

    @property
    def triton_secret_value(self) -> str | None:
        return None if self.triton_secret is None else self.triton_secret.get_secret_value()

    @property
    def triton_is_tls(self) -> bool:
        return (self.triton_url or "").startswith("grpcs://")
