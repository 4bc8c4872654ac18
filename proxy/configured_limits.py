"""The limits that the settings set, in the form that each part takes. Called by app."""

from __future__ import annotations

from functools import partial

from proxy.access.concurrency import ModelConcurrency
from proxy.access.guide_precheck import GuidePrecheck
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.log_prob_budget import LogProbBudget
from proxy.access.request_size import RequestSizeLimits
from proxy.api.bodies.body_reader import BodyLimits
from proxy.api.bodies.json_shape import JsonLimits
from proxy.api.openai.requests.field_limits import FieldLimits
from proxy.domain.model import ModelCard
from proxy.domain.request_limits import RequestLimits
from proxy.domain.tokenizer import Tokenizer
from proxy.domain.usage import UsageStore
from proxy.generation.composition import Access
from proxy.generation.failover import ContinuationLimits
from proxy.generation.time_limits import TimeLimits
from proxy.language.structured.constraint_request import GuideLimits
from proxy.language.structured.schema import SchemaLimits
from proxy.models.registry import Registry
from proxy.process_sandbox import MB, SandboxLimits
from proxy.settings import Settings
from proxy.state.memory_meters import InProcessLedger
from proxy.state.meters import Ledger, OutageMode
from proxy.telemetry.metrics import Metrics


def ledger(settings: Settings) -> Ledger:
    """In Redis, for several proxies, if LEDGER_URL is set; else in memory."""
    if settings.ledger_url_value is None:
        return InProcessLedger()
    from proxy.state.redis_connection import RedisConnection  # takes 0.2 s to import
    from proxy.state.redis_meters import RedisLedger

    redis = RedisConnection(settings.ledger_url_value, timeout_s=settings.ledger_timeout_ms / 1000)
    return RedisLedger(redis, OutageMode(settings.ledger_outage))


def limiter(
    settings: Settings,
    metrics: Metrics,
    ledger: Ledger,
    tokenizer: Tokenizer,
    usage: UsageStore | None,
) -> RequestLimiter:
    """Of tenants, keys and their models."""
    return RequestLimiter(
        ledger,
        tokenizer,
        sink=usage,
        source=usage,
        output_tokens=settings.reserved_output_tokens,
        cached_weight=settings.cached_token_weight,
        max_priority=settings.max_priority,
        on_refusal=metrics.count_limit_refusal,
    )


def request_limits(settings: Settings) -> RequestLimits:
    """Of requests to any model."""
    return RequestLimits(
        max_tokens=settings.max_output_tokens,
        n=settings.max_n,
        best_of=settings.max_best_of,
        prompt_tokens=settings.max_prompt_tokens,
    )


def time_limits(settings: Settings) -> TimeLimits:
    return TimeLimits(
        silence_s=settings.stall_timeout_s,
        whole_s=settings.request_timeout_s,
        short_silence_s=settings.continue_after_silence_s,
    )


def continuation_limits(settings: Settings) -> ContinuationLimits:
    return ContinuationLimits(
        most=settings.max_continuations,
        allows_inexact=settings.inexact_continuation == "continue",
        within_s=settings.continue_within_s,
    )


def sandbox_limits(settings: Settings) -> SandboxLimits:
    return SandboxLimits(
        processes=settings.sandbox_processes,
        cpu_s=settings.sandbox_cpu_s,
        memory_bytes=settings.sandbox_memory_mb * MB,
        imports=(
            "proxy.language.prompting.chat_template",
            "proxy.language.structured.checks",
            "proxy.language.structured.grammar_text",
        ),
    )


def body_limits(settings: Settings) -> BodyLimits:
    return BodyLimits(
        bytes=settings.max_request_bytes,
        json=JsonLimits(depth=settings.max_json_depth, values=settings.max_json_values),
    )


def field_limits(settings: Settings) -> FieldLimits:
    """Of single fields of OpenAI's bodies."""
    return FieldLimits(
        stops=settings.max_stops,
        messages=settings.max_messages,
        stop_bytes=settings.max_stop_bytes,
        logit_bias=settings.max_logit_bias,
        allowed_token_ids=settings.max_allowed_token_ids,
        choices=settings.max_choices,
        tools=settings.max_tools,
        tools_bytes=settings.max_tools_bytes,
    )


def guide_limits(settings: Settings) -> GuideLimits:
    schemas = SchemaLimits(
        size_bytes=settings.max_schema_bytes,
        depth=settings.max_schema_depth,
        properties=settings.max_schema_properties,
    )
    return GuideLimits(
        schemas=schemas,
        grammar_bytes=settings.max_grammar_bytes,
        regex_bytes=settings.max_regex_bytes,
        choices=settings.max_guided_choices,
        choices_bytes=settings.max_guided_choices_bytes,
    )


def is_queued(settings: Settings, card: ModelCard) -> bool:
    """Whether streams of this model wait in the fair queue, which has bounds of its own."""
    return settings.scheduling == "fair" and card.facts.says_rows


def access(
    settings: Settings,
    tokenizer: Tokenizer,
    registry: Registry,
    limiter: RequestLimiter,
) -> Access:
    return Access(
        limiter=limiter,
        concurrency=ModelConcurrency(
            settings.concurrent_requests,
            per_row=settings.generations_per_row,
            rows=registry.rows,
            is_queued=partial(is_queued, settings),
        ),
        guide_precheck=GuidePrecheck(tokenizer, epoch=lambda: registry.epoch),
        log_prob_budget=LogProbBudget(settings.max_held_log_probs),
        request_size=RequestSizeLimits(
            copied_bytes=int(settings.max_copied_mb * 1_000_000),
            log_probs=settings.max_log_probs,
        ),
        isolates_caches=settings.isolate_prefix_caches,
        hides_cached_tokens=not settings.report_cached_tokens,
        queues_by_priority=settings.scheduling == "fair",
    )
