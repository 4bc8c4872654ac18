"""What is kept of callers, and what is written of requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from triton_openai.proxy.setting_groups.group import Group, Secret, Tokens, secret_value, words

LEDGERS = ("redis://", "rediss://", "unix://")


class CallersLimits(Group):
    """Limits of tenants and keys"""

    ledger_url: Secret = None
    """Redis or Valkey that several hosts share for limits: `redis://`, `rediss://` or `unix://`.
    Without it: each host has limits of its own, which its workers share."""
    ledger_outage: Literal["share", "closed", "open"] = "share"
    """What happens while it cannot be reached. `share`: each proxy grants its part of every limit;
    `closed`: limited callers get 503; `open`: nothing is limited."""
    ledger_timeout_ms: Annotated[float, Field(ge=1, le=60_000)] = 250.0
    """How long it may take to answer before it counts as out of reach."""
    reserved_output_tokens: Tokens = 4096
    """The most output tokens of a choice without `max_tokens`, of a caller whose tokens or budget
    are limited; and at most a quarter of the lowest such limit."""
    cached_token_weight: Annotated[float, Field(ge=0, le=1)] = 1.0
    """What a cached prompt token counts in limits on tokens. Budgets in money use `price`."""

    @model_validator(mode="after")
    def _ledger_is_redis(self) -> CallersLimits:
        """It may have a password, so the message does not show it."""
        if self.ledger_url and not (self.ledger_url_value or "").startswith(LEDGERS):
            raise ValueError(f"LEDGER_URL must begin with one of {', '.join(LEDGERS)}")
        return self

    @property
    def ledger_url_value(self) -> str | None:
        return secret_value(self.ledger_url)


class Storage(Group):
    """Storage of tenants, keys, usage and the audit log"""

    store_url: Secret = None
    """Database, with `KEY_PEPPER`: `sqlite:///relative/path`, `sqlite:////absolute/path` or
    `postgresql://user:password@host/database`. Without it: `store.db` in `ARTIFACTS_DIR` if that
    is set, else in `~/.local/share/triton-openai` (`XDG_DATA_HOME`)."""
    old_key_peppers: Secret = None
    """Earlier values of `KEY_PEPPER`, separated by commas. They only verify older entries of the
    audit log; keys made with them are not accepted."""

    @property
    def earlier_peppers(self) -> tuple[str, ...]:
        return tuple(words(secret_value(self.old_key_peppers) or ""))


class Logs(Group):
    """Logs"""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below this level are not written."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`auto` is `text` on a terminal, else `json`."""
    loop_lag_warn_ms: Annotated[float, Field(ge=1, le=60_000)] = 50.0
    """If the event loop is late by more than this, a log line names the request that caused it."""
