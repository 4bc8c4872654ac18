"""The metrics of the engine: their names, descriptions and values, and how Triton gets them.

Only one thread may use Triton's metrics: with two, tritonserver 2.51 crashes (seen under load). So
a thread of ours copies the values ten times a second. That also keeps the round trip to Triton's
process out of the path of a token. Besides our own there are two families of NVIDIA's C++ backend,
with its names and labels, because gateways scrape them (llm-d, the Gateway API's).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from response_writer import ResponseWriter
from stats import Stats

REPORT_EVERY_S = 0.1
Kind = Literal["COUNTER", "GAUGE"]


class MetricReporter:
    """The metrics of one model. By default their only label `model` is its public name, as in the
    proxy's.
    """

    def __init__(self, pb_utils: Any, model: str) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self._families: dict[str, Any] = {}  # a family must outlive its metrics
        self._reports: list[Callable[[], None]] = []
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metric-reporter", daemon=True)

    def add(
        self,
        kind: Kind,
        name: str,
        description: str,
        read: Callable[[], float],
        labels: dict[str, str] | None = None,
    ) -> None:
        """Adds a metric; `read` returns its current value. Call it before `start` only.

        Metrics of one name need different `labels`, and share kind and description.
        """
        families = self._pb_utils.MetricFamily
        if (family := self._families.get(name)) is None:
            family = families(name=name, description=description, kind=getattr(families, kind))
            self._families[name] = family
        metric, reported = family.Metric(labels=labels or {"model": self._model}), 0.0

        def report() -> None:
            nonlocal reported
            value = float(read())
            if value != reported:
                if kind == "GAUGE":  # sums of differences would not be exact
                    metric.set(value)
                else:
                    metric.increment(value - reported)
                reported = value

        self._reports.append(report)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Destroys the metrics. Call it before Triton ends this process.

        A metric that lives until the interpreter ends uses shared memory that no longer exists
        then, and the process dies of SIGSEGV (Triton 2.51).
        """
        self._is_closing.set()
        self._thread.join()
        self._reports.clear()  # and with them the metrics, which must go before their families
        self._families.clear()

    def _run(self) -> None:
        while not self._is_closing.wait(REPORT_EVERY_S):
            for report in self._reports:
                report()


# name: (description, key of ResponseWriter.totals)
TOTALS = {
    "engine_prompt_tokens": ("Prompt tokens of requests whose answer has begun", "prompt_tokens"),
    "engine_generated_tokens": ("Tokens generated", "generated_tokens"),
    "engine_responses": ("Responses sent; each holds one token or more", "responses"),
    "engine_requests_finished": ("Requests that ended by themselves", "finished"),
    "engine_requests_cancelled": ("Requests ended by stop or cancel", "cancelled"),
    "engine_requests_failed": ("Requests ended by an error", "failed"),
    "engine_requests_refused": ("Requests refused by the engine", "refused"),
}
# name: (description, field of Stats)
STATS_TOTALS = {
    "engine_prefill_steps": ("Runs that fed prompt tokens", "prefill_steps"),
    "engine_prefill_tokens": ("Prompt tokens fed", "prefill_tokens"),
    "engine_prefill_seconds": ("Time in prefill", "prefill_seconds"),
    "engine_decode_steps": ("Runs that decoded the batch", "decode_steps"),
    "engine_decode_tokens": ("Rows of all decode runs together", "decode_tokens"),
    "engine_decode_seconds": ("Time in decoding and sampling", "decode_seconds"),
    "engine_cached_tokens": ("Prompt tokens taken from the cache", "cached_tokens"),
    "engine_prefix_hits": ("Prompts whose beginning was cached", "prefix_hits"),
    "engine_prefix_misses": ("Prompts whose beginning was not cached", "prefix_misses"),
    "engine_prefix_evictions": ("Cached blocks evicted", "evicted_blocks"),
    "engine_preemptions": ("Rows taken from a running request", "preemptions"),
}
STATS_NOW = {
    "engine_rows_prefilling": ("Rows in prefill", "rows_prefilling"),
    "engine_rows_decoding": ("Rows in the decode batch", "rows_decoding"),
    "engine_requests_waiting": ("Requests without a row", "waiting"),
    "engine_requests_preempted": (
        "Requests without a row that had one and lost it; on the ONNX engine",
        "preempted",
    ),
    "engine_kv_row_bytes": ("KV cache of the rows in use", "kv_row_bytes"),
    "engine_kv_cached_bytes": ("KV cache kept for later prompts", "kv_cached_bytes"),
    "engine_seconds_without_progress": (
        "Time since the last response or iteration, while requests are in flight",
        "seconds_without_progress",
    ),
}
REQUESTS = "nv_trt_llm_request_metrics"  # label request_type: field of Stats
REQUEST_TYPES = {
    "waiting": "waiting",
    "scheduled": "rows",
    "active": "rows",
    "context": "rows_prefilling",
    "max": "most_rows",
}
KV_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"  # label kv_cache_block_type: field of Stats
KV_BLOCK_TYPES = {
    "max": "kv_blocks",
    "used": "kv_blocks_used",
    "free": "kv_blocks_free",
    "tokens_per": "kv_block_tokens",
    "fraction": "kv_fraction",
}


def add_all(reporter: MetricReporter, writer: ResponseWriter, stats: Stats) -> None:
    def total(key: str) -> Callable[[], float]:
        return lambda: writer.totals[key]

    for name, (description, key) in TOTALS.items():
        reporter.add("COUNTER", name, description, total(key))
    for name, (description, field) in STATS_TOTALS.items():
        reporter.add("COUNTER", name, description, partial(getattr, stats, field))
    for name, (description, field) in STATS_NOW.items():
        reporter.add("GAUGE", name, description, partial(getattr, stats, field))
    reporter.add(
        "GAUGE",
        "engine_requests_unfinished",
        "Requests waiting or running",
        lambda: writer.unfinished,
    )


def add_nvidias(reporter: MetricReporter, stats: Stats, model: str, version: str) -> None:
    """`model` and `version` are Triton's, as in NVIDIA's backend. Only what the runtime knows."""

    def gauges(family: str, description: str, label: str, types: dict[str, str]) -> None:
        for value, field in types.items():
            labels = {label: value, "model": model, "version": version}
            reporter.add("GAUGE", family, description, partial(getattr, stats, field), labels)

    known = {kind: field for kind, field in REQUEST_TYPES.items() if kind != "max"}
    types = REQUEST_TYPES if stats.most_rows else known
    gauges(REQUESTS, "Requests of the engine by their state", "request_type", types)
    if stats.has_kv_blocks:
        text = "Blocks of the engine's KV cache; tokens_per and fraction are not counts"
        gauges(KV_BLOCKS, text, "kv_cache_block_type", KV_BLOCK_TYPES)
