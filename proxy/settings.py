"""The only reader of the environment. `setting_groups` has the fields, this file what they must
satisfy together.

A value that does not parse stops the start with the name of the variable. Called by `cli`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr, field_serializer, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from triton_openai.proxy.authentication_settings import Callers, Identities, Tls, secret_value
from triton_openai.proxy.setting_groups import (
    Answers,
    CallersLimits,
    Concurrency,
    Listening,
    Logs,
    ModelSource,
    Packages,
    RequestSize,
    SchemaSize,
    Storage,
    Times,
    TritonServer,
)

OTHER_NAMES = {"port": "server_port", "host": "server_host"}
ONE_FOLDER_REQUESTS = 10
CALLERS = ("api_key", "key_pepper", "jwt_issuer", "client_name_header")  # any of them suffices
_ANY_CALLERS = " or ".join(name.upper() for name in CALLERS)
TRITON_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
LEDGERS = ("redis://", "rediss://", "unix://")
HOST = re.compile(r"\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s,*]+")


def environment() -> Mapping[str, str]:
    """All variables, for those that models.yaml names."""
    return os.environ


class Settings(
    Listening,
    Callers,
    Identities,
    Tls,
    TritonServer,
    ModelSource,
    Packages,
    Answers,
    Concurrency,
    CallersLimits,
    Times,
    RequestSize,
    SchemaSize,
    Storage,
    Logs,
    BaseSettings,
):
    """Each field is read from the environment variable of the same name in capitals."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_file=None, defer_build=False)

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

    @model_validator(mode="after")
    def _ledger_is_redis(self) -> Settings:
        """It may have a password, so the message does not show it."""
        if self.ledger_url and not (self.ledger_url_value or "").startswith(LEDGERS):
            raise ValueError(f"LEDGER_URL must begin with one of {', '.join(LEDGERS)}")
        return self

    @field_serializer("triton_secret", "ledger_url", when_used="json")
    def _secret_for_workers(self, secret: SecretStr | None) -> str | None:
        """Settings travel as JSON over the pipe between the launcher and its workers only."""
        return None if secret is None else secret.get_secret_value()

    @model_validator(mode="after")
    def _auth_has_callers(self) -> Settings:
        found = [name.upper() for name in (*CALLERS, "metrics_key") if getattr(self, name)]
        if self.auth == "off" and found:
            raise ValueError(
                f"AUTH=off lets everybody in, so {found[0]} has no effect: remove one of them"
            )
        if self.auth != "off" and found == ["METRICS_KEY"]:
            raise ValueError(f"METRICS_KEY alone lets no caller in: set {_ANY_CALLERS}, too")
        if self.auth == "on" and not found:
            raise ValueError(f"AUTH=on lets nobody in: set {_ANY_CALLERS}")
        return self

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

    @model_validator(mode="after")
    def _store_has_a_pepper(self) -> Settings:
        for name in ("store_url", "old_key_peppers"):
            if getattr(self, name) is not None and self.key_pepper is None:
                raise ValueError(f"{name.upper()} has no effect without KEY_PEPPER: set it, too")
        return self

    @property
    def earlier_peppers(self) -> tuple[str, ...]:
        given = secret_value(self.old_key_peppers) or ""
        return tuple(each.strip() for each in given.split(",") if each.strip())

    @property
    def is_authenticated(self) -> bool:
        """Whether callers need a key or token."""
        return self.auth != "off" and any(getattr(self, name) for name in CALLERS)

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
    def ledger_url_value(self) -> str | None:
        return None if self.ledger_url is None else self.ledger_url.get_secret_value()

    @property
    def triton_is_tls(self) -> bool:
        return (self.triton_url or "").startswith("grpcs://")
