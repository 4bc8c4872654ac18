"""One model, or some: where the time of its requests goes, and how long they are."""

from __future__ import annotations

from dashboards.panel import Dashboard, Panel, Query, Row, Variable
from dashboards.promql import MODEL, quantile, quantiles, rate, ratio, total

REQUESTS = Row(
    title="Requests",
    panels=(
        Panel(
            title="Requests a second",
            unit="reqps",
            is_stacked=True,
            queries=(
                Query(
                    expr=rate("proxy_requests_total", "model", "outcome", where=MODEL),
                    legend="{{model}} {{outcome}}",
                ),
            ),
        ),
        Panel(
            title="Requests now",
            queries=(
                Query(
                    expr=total("proxy_requests_active", "model", where=MODEL), legend="{{model}}"
                ),
            ),
        ),
        Panel(
            title="Tokens a second",
            queries=(
                Query(
                    expr=rate("proxy_completion_tokens_total", "model", where=MODEL),
                    legend="{{model}} completion",
                ),
                Query(
                    expr=rate("proxy_prompt_tokens_total", "model", where=MODEL),
                    legend="{{model}} prompt",
                ),
            ),
        ),
        Panel(
            title="Prompt tokens of a request",
            queries=quantiles("proxy_request_prompt_tokens"),
        ),
        Panel(
            title="Generated tokens of a request",
            note="All choices of a request together.",
            queries=quantiles("proxy_request_completion_tokens"),
        ),
        Panel(
            title="Prompt tokens that the engine had cached",
            unit="percentunit",
            queries=(
                Query(
                    expr=ratio(
                        "proxy_cached_prompt_tokens_total",
                        "proxy_prompt_tokens_total",
                        "model",
                        where=MODEL,
                    ),
                    legend="{{model}}",
                ),
            ),
        ),
    ),
)

TIMES = Row(
    title="Times of a request",
    panels=(
        Panel(
            title="Time to first token",
            note="From the request to its first event. A point is one traced request.",
            unit="s",
            queries=quantiles("proxy_time_to_first_token_seconds", has_exemplars=True),
        ),
        Panel(
            title="Duration",
            note="From the request to its last event. A point is one traced request.",
            unit="s",
            queries=quantiles("proxy_request_duration_seconds", has_exemplars=True),
        ),
        Panel(
            title="Within the objectives' bounds",
            note="First tokens; those of short prompts; short answers.",
            unit="percentunit",
            queries=(
                Query(
                    expr="1 - triton_openai:slo_errors:ratio5m{"
                    f'slo=~"first_tokens|short_prompts|short_answers", {MODEL}}}',
                    legend="{{slo}} {{model}}",
                ),
            ),
        ),
        Panel(
            title="Wait for a row",
            note="Of a request, in the proxy's queue and in the engine's together.",
            unit="s",
            queries=quantiles("proxy_request_queue_time_seconds"),
        ),
        Panel(
            title="Queue time",
            note="A stream's wait for a row of the engine: a part of the time to its first token. "
            "Engines that do not report it are absent.",
            unit="s",
            queries=quantiles("proxy_queue_time_seconds"),
        ),
        Panel(
            title="Prefill",
            note="From a stream's row to its first token, by engines that report it.",
            unit="s",
            queries=quantiles("proxy_prefill_time_seconds"),
        ),
        Panel(
            title="Decode",
            note="From a stream's first token to its last, by engines that report it.",
            unit="s",
            queries=quantiles("proxy_decode_time_seconds"),
        ),
        Panel(
            title="Inter-token latency",
            note="From one response of an engine stream to its next; each has a token or more.",
            unit="s",
            queries=quantiles("proxy_inter_token_latency_seconds"),
        ),
        Panel(
            title="Time per output token",
            note="Mean time of a stream's tokens after its first response.",
            unit="s",
            queries=quantiles("proxy_time_per_output_token_seconds"),
        ),
    ),
)

FAULTS = Row(
    title="Streams that lost their engine",
    panels=(
        Panel(
            title="Sent again or continued, a second",
            note="Sent again: before the first token. Continued: after it.",
            queries=(
                Query(
                    expr=rate("proxy_requests_resent_total", "model", where=MODEL),
                    legend="{{model}} sent again",
                ),
                Query(
                    expr=rate(
                        "proxy_streams_continued_total", "model", "cause", "result", where=MODEL
                    ),
                    legend="{{model}} {{cause}}: {{result}}",
                ),
            ),
        ),
        Panel(
            title="Pause of continued streams",
            unit="s",
            queries=(
                Query(
                    expr=quantile(0.95, "proxy_continuation_pause_seconds", "model", where=MODEL),
                    legend="{{model}} p95",
                ),
            ),
        ),
        Panel(
            title="Shadow traffic, a second",
            queries=(
                Query(
                    expr=rate("proxy_shadow_requests_total", "deployment", "outcome", where=MODEL),
                    legend="{{deployment}} {{outcome}}",
                ),
                Query(
                    expr=rate("proxy_shadow_differences_total", "deployment", "field", where=MODEL),
                    legend="{{deployment}} differs in {{field}}",
                ),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    name="model",
    title="model",
    note="Where the time of a model's requests goes, and how long they are.",
    variables=(Variable(label="model", metric="proxy_requests_total", title="Model"),),
    rows=(REQUESTS, TIMES, FAULTS),
)
