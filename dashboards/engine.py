"""What engines do: rows, batches, KV cache, and Triton's own counts."""

from __future__ import annotations

from dashboards.panel import Dashboard, Panel, Query, Row, Variable
from dashboards.promql import MODEL, rate, ratio, total

# NVIDIA's metrics, also of our engines, have the name of the Triton model.
TRITON_MODEL = 'model=~"($model)_engine"'


def of_model(metric: str, legend: str = "") -> Query:
    """A counter of the engine, by model."""
    return Query(expr=rate(metric, "model", where=MODEL), legend=f"{{{{model}}}} {legend}".strip())


def now(metric: str, legend: str = "") -> Query:
    """A gauge of the engine, by model."""
    return Query(expr=total(metric, "model", where=MODEL), legend=f"{{{{model}}}} {legend}".strip())


def mean(above: str, below: str, legend: str = "") -> Query:
    return Query(
        expr=ratio(above, below, "model", where=MODEL), legend=f"{{{{model}}}} {legend}".strip()
    )


REQUESTS = Row(
    title="Requests and rows",
    panels=(
        Panel(
            title="Waiting and unfinished",
            note="Of our engines and of NVIDIA's C++ backend.",
            queries=(
                now("triton_openai:requests_waiting", "waiting"),
                now("triton_openai:requests_unfinished", "unfinished"),
                now("triton_openai:requests_queued", "waiting, also in proxies"),
            ),
        ),
        Panel(
            title="Rows",
            queries=(
                now("engine_rows_prefilling", "prefilling"),
                now("engine_rows_decoding", "decoding"),
            ),
        ),
        Panel(
            title="Ends of requests, a second",
            unit="reqps",
            queries=(
                of_model("engine_requests_finished", "finished"),
                of_model("engine_requests_cancelled", "cancelled"),
                of_model("engine_requests_refused", "refused"),
                of_model("engine_requests_failed", "failed"),
            ),
        ),
    ),
)

STEPS = Row(
    title="Steps",
    panels=(
        Panel(
            title="Mean batch of a decode step",
            queries=(mean("engine_decode_tokens", "engine_decode_steps"),),
        ),
        Panel(
            title="Time of a step",
            unit="s",
            queries=(
                mean("engine_decode_seconds", "engine_decode_steps", "decode"),
                mean("engine_prefill_seconds", "engine_prefill_steps", "prefill"),
            ),
        ),
        Panel(
            title="Tokens a second",
            queries=(
                of_model("engine_generated_tokens", "generated"),
                of_model("engine_prompt_tokens", "prompt"),
                of_model("engine_prefill_tokens", "prefilled"),
            ),
        ),
        Panel(
            title="Tokens in a response",
            note="Above 1 where responses are joined, because a reader is slow or steps are fast.",
            queries=(mean("engine_generated_tokens", "engine_responses"),),
        ),
        Panel(
            title="Share of time in prefill and decoding",
            unit="percentunit",
            queries=(
                of_model("engine_prefill_seconds", "prefill"),
                of_model("engine_decode_seconds", "decode"),
            ),
        ),
        Panel(
            title="Seconds without progress",
            note="TensorRT-LLM's LLM API; 0 for other engines.",
            unit="s",
            queries=(
                Query(
                    expr=f"max by (model) (engine_seconds_without_progress{{{MODEL}}})",
                    legend="{{model}}",
                ),
            ),
        ),
    ),
)

MEMORY = Row(
    title="Memory",
    panels=(
        Panel(
            title="KV cache",
            unit="bytes",
            is_stacked=True,
            queries=(
                now("engine_kv_row_bytes", "rows"),
                now("engine_kv_cached_bytes", "kept prefixes"),
            ),
        ),
        Panel(
            title="KV cache in use",
            note="Also of NVIDIA's C++ backend.",
            unit="percentunit",
            queries=(
                Query(
                    expr="max by (model) (nv_trt_llm_kv_cache_block_metrics{"
                    f'kv_cache_block_type="fraction", {TRITON_MODEL}}})',
                    legend="{{model}}",
                ),
            ),
        ),
        Panel(
            title="Prompt tokens taken from the cache",
            unit="percentunit",
            queries=(mean("engine_cached_tokens", "engine_prompt_tokens"),),
        ),
        Panel(
            title="Prefixes a second",
            queries=(
                of_model("engine_prefix_hits", "hits"),
                of_model("engine_prefix_misses", "misses"),
                of_model("engine_prefix_evictions", "evicted blocks"),
            ),
        ),
        Panel(
            title="Preemptions a second",
            note="Rows taken from running requests.",
            queries=(of_model("engine_preemptions"),),
        ),
    ),
)

TRITON = Row(
    title="Triton",
    panels=(
        Panel(
            title="Requests a second, by Triton model",
            unit="reqps",
            queries=(
                Query(expr=rate("nv_inference_request_success", "model"), legend="{{model}}"),
                Query(
                    expr=rate("nv_inference_request_failure", "model", "reason"),
                    legend="{{model}} failed: {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Mean time in Triton's own queue",
            unit="µs",
            queries=(
                Query(
                    expr=ratio(
                        "nv_inference_queue_duration_us", "nv_inference_request_success", "model"
                    ),
                    legend="{{model}}",
                ),
            ),
        ),
        Panel(
            title="Requests pending, by Triton model",
            queries=(
                Query(
                    expr=total("nv_inference_pending_request_count", "model"), legend="{{model}}"
                ),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    name="engine",
    title="engine",
    note="Rows, batches, KV cache, and Triton's own counts.",
    variables=(Variable(label="model", metric="engine_requests_unfinished", title="Model"),),
    rows=(REQUESTS, STEPS, MEMORY, TRITON),
)
