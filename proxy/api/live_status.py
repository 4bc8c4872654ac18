"""What the proxy does now: frames made once a second for all viewers, and series of the last hour.

Without viewers nothing is made but a point of the series, every five seconds. Called by `app` and
`live_routes`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry

from proxy.api.http.answer import Payload, named_event
from proxy.domain.record import RequestRecord
from proxy.telemetry import live_figures as figures
from proxy.telemetry.metrics_window import Page, Window, page_of, summed
from proxy.telemetry.recent_requests import UNWATCHED
from proxy.telemetry.request_log import RequestLog, line_of

FRAME_S = 1.0
FRAMES_A_POINT = 5
POINTS = 720  # an hour of them
MOST_REQUESTS = 50  # in a frame
VIEW_S = 600.0  # then viewers come again: a revoked key must not watch for ever
WATCHING = (*UNWATCHED, "/metrics")  # paths: of requests that ask nothing of a model
# Generated tokens with those of running requests. The metric counts a request when it ends.
TOKENS_SO_FAR = "tokens_so_far"
METRICS = (
    figures.ACTIVE,
    figures.ENDPOINT_TOKENS,
    f"{figures.LAG}_bucket",
    figures.READY,
    figures.REJECTIONS,
    figures.REQUESTS,
    figures.TENANT_REQUESTS,
    figures.TENANT_TOKENS_IN,
    figures.TENANT_TOKENS_OUT,
    figures.TOKENS_IN,
    figures.TOKENS_OUT,
    f"{figures.TTFT}_bucket",
    figures.WAITING,
)


class LiveStatus:
    """registry: of the proxy's metrics. log: knows the requests that run. operators_part: what a
    frame has for viewers with the scope `admin` alone. clock: seconds that never go back.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        log: RequestLog,
        operators_part: Callable[[], Mapping[str, Any]],
        *,
        stopping: asyncio.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = registry.restricted_registry(METRICS)
        self._log = log
        self._operators_part = operators_part
        self._stopping = stopping
        self._clock = clock
        self._between_points = Window(intervals=1)
        self._window = Window()
        self._points: deque[Payload] = deque(maxlen=POINTS)
        self._viewers = 0
        self._frame = self._operators_frame = b""
        self._made = asyncio.Event()  # another one for each frame

    async def run(self) -> None:
        """Until it is cancelled."""
        self._between_points.add(self._page(), self._clock())
        while True:
            for number in range(FRAMES_A_POINT):
                await asyncio.sleep(FRAME_S)
                if number == FRAMES_A_POINT - 1:
                    self._between_points.add(self._page(), self._clock())
                    self._points.append(_totals(self._between_points))
                if self._viewers:
                    self._make_frames()

    async def events(self, *, is_operator: bool) -> AsyncGenerator[bytes, None]:
        """Server-sent events: `hello` with the series, then a `frame` a second. A slow reader
        misses frames. Ends when the proxy stops, or after VIEW_S.
        """
        began = self._clock()
        if not self._viewers:
            self._window = Window()
            self._window.add(self._page(), began)
        self._viewers += 1
        try:
            yield named_event(
                {
                    "type": "hello",
                    "is_operator": is_operator,
                    "series": {name: [each[name] for each in self._points] for name in SERIES},
                }
            )
            while not self._stopping.is_set() and self._clock() - began < VIEW_S:
                await self._made.wait()
                yield self._operators_frame if is_operator else self._frame
        finally:
            self._viewers -= 1

    def _page(self) -> Page:
        """Takes about a millisecond."""
        page = dict(page_of(self._metrics.collect()))
        tokens = summed(page, figures.TOKENS_OUT, "model")
        for record in self._log.running:
            if record.model is not None and not record.has_generated:
                used, model = record.usage, (record.model,)
                tokens[model] = tokens.get(model, 0.0) + (used.completion_tokens if used else 0)
        page[TOKENS_SO_FAR] = {(("model", name),): count for (name,), count in tokens.items()}
        return page

    def _make_frames(self) -> None:
        self._window.add(self._page(), self._clock())
        window = self._window
        frame = {
            "type": "frame",
            "is_ready": bool(summed(window.page, figures.READY).get((), 0.0)),
            "loop_lag_p99_s": window.quantiles(figures.LAG, 0.99).get(()),
            "totals": _totals(window),
            "models": [*figures.model_figures(window, TOKENS_SO_FAR)],
            "tenants": [*figures.tenant_figures(window)],
            "errors": [*figures.error_figures(window)],
        }
        tokens = window.rates(figures.ENDPOINT_TOKENS, "pool", "endpoint")
        self._frame = named_event(frame)
        self._operators_frame = named_event(
            {
                **frame,
                "endpoint_tokens_per_s": {address: rate for (_, address), rate in tokens.items()},
                "running": [*islice(self._running(), MOST_REQUESTS)],
                **self._operators_part(),
            }
        )
        made, self._made = self._made, asyncio.Event()
        made.set()

    def _running(self) -> Iterator[Payload]:
        for record in self._log.running:
            if not record.path.startswith(WATCHING):
                yield running_fields(record)


SERIES = (
    "at",
    "requests_per_s",
    "failures_per_s",
    "prompt_tokens_per_s",
    "completion_tokens_per_s",
    "running",
    "waiting",
    "ttft_p50_s",
    "ttft_p99_s",
)


def _totals(window: Window) -> Payload:
    """A point of SERIES, over all models. at: Unix time."""
    models = [*figures.model_figures(window, TOKENS_SO_FAR)]
    summable = SERIES[1:7]
    sums = {name: sum(getattr(one, name) or 0.0 for one in models) for name in summable}
    quantiles = {
        f"ttft_p{share}_s": window.quantiles(figures.TTFT, share / 100).get(())
        for share in (50, 99)
    }
    return {"at": round(time.time(), 1), **sums, **quantiles}


def running_fields(record: RequestRecord) -> Payload:
    """A request that runs: the fields of its log line so far, and where it is now."""
    line, used, queued = line_of(record), record.usage, record.queued
    stage = next((each for each in reversed(record.stages) if each.ended is None), None)
    return {
        "request_id": record.request_id,
        **{name: line.get(name) for name in ("model", "tenant", "key_id", "path", "duration_ms")},
        "stage": None if stage is None else stage.name.value,
        "stages_ms": line.get("stages_ms", {}),
        "queue_position": None if queued is None else queued.position,
        "ttft_s": record.first_event_s,
        "prompt_tokens": used and used.prompt_tokens,
        "completion_tokens": used and used.completion_tokens,
    }
