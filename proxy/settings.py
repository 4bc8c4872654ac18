"""The only reader of the environment. `setting_groups` has the fields, this file what they must
satisfy together.

A value that does not parse stops the start with the name of the variable. Called by `cli`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from proxy.setting_groups.callers import Callers, Identities
from proxy.setting_groups.continuation import Continuation
from proxy.setting_groups.listening import Listening, Tls
from proxy.setting_groups.requests import (
    Answers,
    Concurrency,
    RequestSize,
    SchemaSize,
    Times,
)
from proxy.setting_groups.scheduling import Scheduling
from proxy.setting_groups.state import (
    CallersLimits,
    Idempotency,
    Logs,
    MetricsLabels,
    Recording,
    Storage,
)
from proxy.setting_groups.traces import Traces
from proxy.setting_groups.triton import ModelSource, Packages, TritonServer

OTHER_NAMES = {"port": "server_port", "host": "server_host"}
ONE_FOLDER_REQUESTS = 10
REMOVED = {
    "WORKERS": "one process is one proxy. Run several behind a load balancer, with LEDGER_URL: "
    "docs/deployment.md#several-proxies",
    "IDEMPOTENCY_DIR": "answers are kept in memory, or in Redis with LEDGER_URL: "
    "docs/deployment.md#several-proxies",
}
CALLERS = ("api_key", "key_pepper", "jwt_issuer", "client_name_header")  # any of them suffices
_ANY_CALLERS = " or ".join(name.upper() for name in CALLERS)


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
    Scheduling,
    CallersLimits,
    Times,
    Continuation,
    RequestSize,
    SchemaSize,
    Idempotency,
    Storage,
    Recording,
    Logs,
    Traces,
    MetricsLabels,
    BaseSettings,
):
    """Each field is read from the environment variable of the same name in capitals."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_file=None, defer_build=False)

    @model_validator(mode="before")
    @classmethod
    def _none_was_removed(cls, given: Any) -> Any:
        found = REMOVED.keys() & {name.upper() for name in environment()}
        for name in sorted(found):
            raise ValueError(f"{name} is no setting any more, remove it: {REMOVED[name]}")
        return given

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
    def is_authenticated(self) -> bool:
        """Whether callers need a key or token."""
        return self.auth != "off" and any(getattr(self, name) for name in CALLERS)

    @property
    def opens_administration(self) -> bool:
        """Whether callers without a key may administrate."""
        return self.admin == "on" and self.auth != "off" and not self.is_authenticated

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
