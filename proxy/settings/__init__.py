"""The only reader of the environment. The modules here have groups of settings, by subject; this
file has what they must satisfy together.

A group is the option object of its part: the part takes the group and reads its fields. `Settings`
is all groups at once, so it is given to any part. The ending of a name is its unit: `_s`, `_ms`,
`_mb`, `_bytes`, `_tokens`. A value that does not parse stops the start and names its variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from proxy.settings.callers import Callers, Identities
from proxy.settings.listening import Listening, Tls
from proxy.settings.requests import (
    Answers,
    Concurrency,
    RequestSize,
    Times,
)
from proxy.settings.state import (
    Batches,
    CallersLimits,
    Idempotency,
    KeptResponses,
    Logs,
    MetricsLabels,
    Recording,
    Storage,
    Traces,
)
from proxy.settings.streams import Continuation, Scheduling
from proxy.settings.triton import ModelSource, TritonServer

PATHS = (Path, Path | None)
OTHER_NAMES = {"port": "server_port", "host": "server_host"}
ONE_FOLDER_REQUESTS = 10
FRONTS = "FORWARDED_ALLOW_IPS"  # the server reads it, too
LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|::1")
REMOVED = {
    "WORKERS": "one process is one proxy. Run several behind a load balancer, with LEDGER_URL",
    "IDEMPOTENCY_DIR": "answers are kept in memory, or in Redis with LEDGER_URL",
    "INSTALL_PACKAGES": "nothing is installed at run time: make build-tools, or the extra `build`",
    "METRICS_VLLM_NAMES": "docker/prometheus/vllm.yml has recording rules with vLLM's names",
    "CPU_SCHEDULING": "it is chosen by the number of cores",
    "DRAIN_MOVES_STREAMS": "streams of an endpoint that drains always move, if they can",
    "JWT_LEEWAY_S": "it is 30 s",
    "JWT_MAX_BYTES": "it is 8192",
    "KEY_OUTAGE_S": "it is 60 s",
    "KEY_OUTAGE_STATUS": "it is 503",
    "LOOP_LAG_WARN_MS": "it is 50 ms",
    "MAX_ANSWER_READERS": "it is 32",
    "MAX_ALLOWED_TOKEN_IDS": "it is 16384",
    "MAX_BEST_OF": "MAX_CHOICES holds, and `limits` of a model in models.yaml",
    "MAX_BODIES_MB": "it is 48 MB, or four times MAX_REQUEST_SIZE_MB",
    "MAX_COPIED_MB": "it is 16 MB",
    "MAX_GRAMMAR_BYTES": "it is 256000",
    "MAX_GUIDED_CHOICES": "it is 1024",
    "MAX_GUIDED_CHOICES_BYTES": "it is 65536",
    "MAX_HELD_LOG_PROBS": "it is 1000000",
    "MAX_HELD_ANSWERS_MB": "it is 256 MB, or a quarter of the memory",
    "MAX_JSON_DEPTH": "it is 100",
    "MAX_JSON_VALUES": "it is 200000",
    "MAX_KEPT_ANSWER_MB": "it is 8 MB",
    "MAX_KEPT_ANSWERS": "it is 10000 for one tenant",
    "MAX_LOG_PROBS": "it is 250000",
    "MAX_LOGIT_BIAS": "it is 1024",
    "MAX_MESSAGES": "it is 2048",
    "MAX_N": "MAX_CHOICES holds, and `limits` of a model in models.yaml",
    "MAX_REGEX_BYTES": "it is 16384",
    "MAX_SCHEMA_DEPTH": "it is 64",
    "MAX_SCHEMA_PROPERTIES": "it is 5000",
    "MAX_SCHEMA_BYTES": "it is 256000",
    "MAX_SOCKET_REQUESTS": "it is 8",
    "MAX_STOP_BYTES": "it is 4096",
    "MAX_STOPS": "it is 16",
    "MAX_TOKENIZER_REQUESTS": "it is 32",
    "MAX_TOOLS": "it is 128",
    "MAX_TOOLS_BYTES": "it is 256000",
    "QUEUE_LENGTH_PER_TENANT": "a full queue takes places from the tenant that has most",
    "RECENT_REQUESTS": "it is 1000",
    "REQUEST_BODY_TIMEOUT_S": "it is 60 s",
    "RESERVED_OUTPUT_TOKENS": "it is 4096, or a quarter of the lowest limit",
    "SANDBOX_CPU_S": "it is 2 s",
    "SANDBOX_MEMORY_MB": "it is 512 MB",
    "SLOW_SENDER_TIMEOUT_S": "it is 60 s",
    "TRITON_TRANSPORT": "the proxy's own HTTP/2 reader reads token streams",
}
CALLERS = ("api_key", "key_pepper", "jwt_issuer", "client_name_header")  # any of them suffices
ANY_CALLERS = " or ".join(name.upper() for name in CALLERS)


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
    Answers,
    Concurrency,
    Scheduling,
    CallersLimits,
    Times,
    Continuation,
    RequestSize,
    Idempotency,
    KeptResponses,
    Batches,
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
            raise ValueError(f"{name} is no longer a setting, remove it: {REMOVED[name]}")
        return given

    @model_validator(mode="before")
    @classmethod
    def _an_empty_path_is_not_given(cls, given: dict[str, Any]) -> Any:
        """Otherwise it would be the current folder."""
        paths = {name for name, each in cls.model_fields.items() if each.annotation in PATHS}
        return {name: each for name, each in given.items() if each != "" or name not in paths}

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
            raise ValueError(f"METRICS_KEY alone lets no caller in: set {ANY_CALLERS}, too")
        if self.auth == "on" and not found:
            raise ValueError(f"AUTH=on lets nobody in: set {ANY_CALLERS}")
        return self

    @model_validator(mode="after")
    def _keys_name_tenants(self) -> Settings:
        if self.tenant_from_metadata and self.is_authenticated:
            raise ValueError(
                "TENANT_FROM_METADATA has no effect where keys or tokens name the tenant: remove it"
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
    def has_one_caller(self) -> bool:
        """Whether all who have no name of their own are one caller: those with `API_KEY`, or
        without keys those of this machine, unless a front brings others.
        """
        if self.is_authenticated or self.auth == "off":
            return self.api_key is not None
        return self.is_local

    @property
    def is_local(self) -> bool:
        """Whether the callers are of this machine."""
        return LOOPBACK.fullmatch(self.host) is not None and not environment().get(FRONTS)

    @property
    def origins(self) -> tuple[str, ...]:
        """Web pages that may call. One folder has those of the server that it stands in for, all,
        where only this machine calls and nobody administers.
        """
        opens = self.model_path is not None and self.is_local and self.admin != "on"
        return self.cors_origins or (("*",) if opens else ())

    @property
    def isolates_prefix_caches(self) -> bool:
        """Whether tenants share no cached prefix."""
        if self.isolate_prefix_caches is not None:
            return self.isolate_prefix_caches
        has_tenants = any(getattr(self, name) for name in CALLERS if name != "api_key")
        return self.auth != "off" and has_tenants

    @property
    def opens_administration(self) -> bool:
        """Whether callers without a key may use the administration."""
        return self.admin == "on" and self.auth != "off" and not self.is_authenticated

    @property
    def concurrent_requests(self) -> int | None:
        """At most; None: no limit. One folder on one CPU has one by default, a registry none."""
        if self.max_concurrent_requests is None and self.model_path is not None:
            return ONE_FOLDER_REQUESTS
        return self.max_concurrent_requests

    @property
    def priority_ceiling(self) -> int:
        """The highest priority of callers without a ceiling of their own."""
        if self.max_priority is not None or self.is_authenticated:
            return self.max_priority or 0
        return max([0, *self.priority_words.values()])

    @property
    def max_request_bytes(self) -> int:
        """One folder has the limit of the server that it stands in for."""
        usual_mb = 2.0 if self.model_path is None else 10.0
        return int((self.max_request_size_mb or usual_mb) * 1_000_000)
