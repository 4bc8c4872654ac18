"""What is kept of callers, and what is written of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from proxy.settings.group import (
    AtMost,
    Group,
    Secret,
    secret_value,
    words,
)

Megabytes = Annotated[float, Field(gt=0, le=1_000_000)]
LEDGERS = ("redis://", "rediss://", "unix://")


class CallersLimits(Group):
    """Limits of tenants and keys"""

    ledger_url: Secret = None
    """Redis or Valkey that several proxies share for limits, queues and idempotent answers:
    `redis://`, `rediss://` or `unix://`. Without it each proxy has its own, in memory. Set it where
    several proxies serve the same callers."""
    ledger_outage: Literal["share", "closed", "open"] = "share"
    """What happens while it cannot be reached. `share`: each proxy grants its part of every limit;
    `closed`: limited callers get 503; `open`: nothing is limited. Choose by what is worse: too much
    use, or refusals."""
    ledger_timeout_ms: Annotated[float, Field(ge=1, le=60_000)] = 250.0
    """How long it may take to answer before it counts as out of reach; commands about kept answers
    have a second more. Raise it for a Redis in another zone."""
    cached_token_weight: Annotated[float, Field(ge=0, le=1)] = 1.0
    """What a cached prompt token counts in limits on tokens. Budgets in money use `price`. Lower it
    where cached tokens should cost callers less."""

    @model_validator(mode="after")
    def _ledger_is_redis(self) -> CallersLimits:
        """It may have a password, so the message does not show it."""
        if self.ledger_url and not (self.ledger_url_value or "").startswith(LEDGERS):
            raise ValueError(f"LEDGER_URL must begin with one of {', '.join(LEDGERS)}")
        return self

    @property
    def ledger_url_value(self) -> str | None:
        return secret_value(self.ledger_url)

    @property
    def live_state(self) -> str:
        """Where limits and idempotent answers are, for operators; without a password."""
        if self.ledger_url_value is None:
            return "in memory, for this proxy alone"
        url = urlsplit(self.ledger_url_value)
        place = url.path if url.scheme == "unix" else url.netloc.rpartition("@")[2]
        return f"in Redis at {place}, shared with other proxies"


class Idempotency(Group):
    """Requests with an Idempotency-Key"""

    idempotency_keep_s: Annotated[float, Field(ge=0, le=2_592_000)] = 86_400.0
    """How long an answer is kept for later requests with the same key. 0: running answers can be
    joined, and finished ones are not kept. Lower it where answers may not be kept."""
    idempotency_grace_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """How long a generation whose readers have all disconnected runs on, for a retry. Raise it for
    clients that retry slowly."""
    resume_grace_s: Annotated[float, Field(ge=0, le=3600)] = 30.0
    """The same for a stream of events, which `Last-Event-ID` continues; also how long one that is
    not kept can be continued after its end. Raise it for clients on unstable networks."""
    max_kept_mb: Annotated[float, Field(gt=0, le=1_000_000)] = 200.0
    """All answers that are kept, in the proxy's memory or in Redis; the oldest of the tenant that
    has most go first. Raise it where there is memory."""


class KeptResponses(Group):
    """Responses that can be read later (/v1/responses with `store`)"""

    responses_keep_s: Annotated[float, Field(ge=0, le=31_536_000)] = 86_400.0
    """How long a response is kept, with its input. 0: none is, so that `store`, `background` and
    `previous_response_id` are refused. Lower it where texts may not be kept."""
    max_responses_mb: Annotated[float, Field(gt=0, le=1_000_000)] = 200.0
    """All kept responses, in the proxy's memory or, with `LEDGER_URL`, in Redis; the oldest of the
    tenant that has most go first. Raise it where there is memory."""


class Batches(Group):
    """Files and batches (/v1/files, /v1/batches)"""

    files_url: str | None = None
    """Where files and batches are kept: a folder, or a store such as `s3://bucket/path`, `gs://` or
    `az://`, whose credentials are variables of its own. Without it: `files` in `ARTIFACTS_DIR` if
    that is set, else in `~/.local/share/triton-openai` (`XDG_DATA_HOME`); with `LEDGER_URL`, the
    server then has neither files nor batches. Set it where several proxies share them."""
    files_keep_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """How long a file or a batch is kept, unless it was created for less. Set it as your rules of
    retention say."""
    max_file_mb: Megabytes = 200.0
    """One file. Lower it where files fill the disk."""
    max_tenant_files_mb: Megabytes = 2000.0
    """All files of one tenant. Raise it where there is room."""
    max_batch_lines: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    """Requests of one batch. Lower it where batches take too long."""
    max_open_batches: AtMost = 20
    """Batches of one tenant that have not ended. Lower it where tenants queue too much work."""
    batch_rate: Annotated[float, Field(ge=0, le=10)] = 0.5
    """What the tokens of a batch cost, as a part of the model's `price`. 1 for the whole price."""


class Storage(Group):
    """Storage of tenants, keys, usage and the audit log"""

    store_url: Secret = None
    """Database, with `KEY_PEPPER`: `sqlite:///relative/path`, `sqlite:////absolute/path` or
    `postgresql://user:password@host/database`. Without it: `store.db` in `ARTIFACTS_DIR` if that is
    set, else in `~/.local/share/triton-openai` (`XDG_DATA_HOME`). Set it to PostgreSQL for several
    proxies."""
    old_key_peppers: Secret = None
    """Earlier values of `KEY_PEPPER`, separated by commas. They only verify older entries of the
    audit log; keys made with them are not accepted. Set it after a change of the pepper."""

    @property
    def earlier_peppers(self) -> tuple[str, ...]:
        return tuple(words(secret_value(self.old_key_peppers) or ""))


class Recording(Group):
    """Recording of requests and answers"""

    record_dir: Path | None = None
    """Folder for requests and answers of the tenants that are recorded, which only the proxy's user
    may read. Without it nothing is recorded. Set it to record."""
    record_keep_days: Annotated[int, Field(ge=1, le=3650)] = 7
    """Days for which they are kept, besides the day itself. Set it as your rules of retention
    say."""
    max_record_gb: Annotated[float, Field(gt=0, le=1_000_000)] = 10.0
    """All records; the oldest days go first. If those of one day are more, recording pauses. Set it
    to what the disk has."""
    record_sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of these tenants' requests that is recorded, chosen by chance. Lower it where
    all are too many."""


class Logs(Group):
    """Logs"""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below this level are not written. `triton-openai log-level` changes it at run time.
    Set `debug` to look for a fault."""
    log_content: bool = False
    """With it, lines at the level `debug` have prompts and answers, and what libraries write at
    that level, where keys may be: for tests, never where callers' texts are confidential."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`auto` is `text` on a terminal, else `json`. Set it where logs of a terminal are parsed."""


class Traces(Group):
    """Traces (OpenTelemetry's own variables configure the rest)"""

    trace_slow_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    """A request that takes longer than this is kept even if it is not sampled; one that failed
    always is. Raise it where long answers are usual."""


class MetricsLabels(Group):
    """Metrics"""

    metrics_tenants: Annotated[int, Field(ge=0, le=10_000)] = 50
    """Tenants with metrics of their own: the first ones that send a request. All others share the
    label `other`. Raise it where Prometheus has room for more."""
