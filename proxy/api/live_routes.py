"""GET /metrics/live: server-sent events for `triton-openai top` and the web page.

A frame is made once a second for all viewers. Without viewers nothing is made but a point of the
last hour's series, every five seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from itertools import islice
from typing import Any

from fastapi import APIRouter
from prometheus_client import CollectorRegistry
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from proxy.access.concurrency import ConcurrencyLimit
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.http.stream_format import SSE, Payload, named_event
from proxy.api.pools.pool_bodies import Plans, deployment_bodies, endpoint_body
from proxy.api.pools.pools_routes import queue_bodies
from proxy.domain.endpoints import Decisions, Pools
from proxy.domain.identity import Scope, current_caller
from proxy.domain.record import RequestRecord
from proxy.domain.scheduling import MOST_TENANTS_SHOWN, Scheduler
from proxy.telemetry import live_figures as figures
from proxy.telemetry.metrics_window import Labels, Page, Window, page_of, summed
from proxy.telemetry.recent_requests import UNWATCHED
from proxy.telemetry.request_log import RequestLog, line_of

FRAME_S, FRAMES_A_POINT, POINTS = 1.0, 5, 720  # points of an hour
MOST_REQUESTS, MOST_VIEWERS = 50, 50
VIEW_S = 600.0  # then viewers come again: a revoked key must not watch for ever
WATCHING = (*UNWATCHED, "/metrics")  # paths of requests that need no model


class LiveStatus:
    """registry: of the proxy's metrics. log: knows the requests that run. operators_part: what a
    frame has for viewers with the scope `admin` alone. stopping: ends all streams.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        log: RequestLog,
        operators_part: Callable[[], Mapping[str, Any]],
        *,
        stopping: asyncio.Event,
    ) -> None:
        self._metrics = registry.restricted_registry(figures.NAMES)
        self._log = log
        self._operators_part = operators_part
        self._stopping = stopping
        self._between_points = Window(intervals=1)
        self._window = Window()
        self._points: deque[Payload] = deque(maxlen=POINTS)
        self._viewers = 0
        self._frame = self._operators_frame = b""
        self._made = asyncio.Event()  # another one for each frame

    async def run(self) -> None:
        """Until it is cancelled."""
        self._between_points.add(self._page(), time.monotonic())
        while True:
            for number in range(FRAMES_A_POINT):
                await asyncio.sleep(FRAME_S)
                if number == FRAMES_A_POINT - 1:
                    self._between_points.add(self._page(), time.monotonic())
                    self._points.append(figures.totals(self._between_points))
                if self._viewers:
                    self._make_frames()

    async def events(self, *, is_operator: bool) -> AsyncGenerator[bytes, None]:
        """Yields `hello` with the series, then a `frame` each second. A slow reader misses frames.

        Ends when the proxy stops, or after VIEW_S.
        """
        began = time.monotonic()
        if not self._viewers:
            self._window = Window()
            self._window.add(self._page(), began)
        self._viewers += 1
        try:
            series = {name: [each[name] for each in self._points] for name in figures.SERIES}
            hello = {"type": "hello", "is_operator": is_operator, "series": series}
            yield named_event({**hello, "columns": figures.COLUMNS})
            while not self._stopping.is_set() and time.monotonic() - began < VIEW_S:
                await self._made.wait()
                yield self._operators_frame if is_operator else self._frame
        finally:
            self._viewers -= 1

    def _page(self) -> Page:
        page = dict(page_of(self._metrics.collect()))
        tokens = summed(page, figures.TOKENS_OUT, "model")
        for record in self._log.running:
            if record.model is not None and not record.has_generated:
                used, model = record.usage, (record.model,)
                tokens[model] = tokens.get(model, 0.0) + (used.completion_tokens if used else 0)
        counts: dict[Labels, float] = {(("model", name),): n for (name,), n in tokens.items()}
        page[figures.TOKENS_SO_FAR] = counts
        return page

    def _make_frames(self) -> None:
        self._window.add(self._page(), time.monotonic())
        frame = {"type": "frame", **vars(figures.live_frame(self._window))}
        running = (one for one in self._log.running if not one.path.startswith(WATCHING))
        more = {
            "running": [running_fields(each) for each in islice(running, MOST_REQUESTS)],
            **self._operators_part(),
        }
        if "endpoints" in more:
            rates = {(one["pool"], one["address"]): one for one in frame["endpoints"]}
            none = {"tokens_per_s": 0.0}
            more["endpoints"] = [
                {**rates.get((each["pool"], each["address"]), none), **each}
                for each in more["endpoints"]
            ]
        self._frame, self._operators_frame = named_event(frame), named_event({**frame, **more})
        made, self._made = self._made, asyncio.Event()
        made.set()


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


def operators_part(
    pools: Pools, decisions: Decisions, plans: Callable[[], Plans], scheduler: Scheduler
) -> Mapping[str, Any]:
    """What the lists of /admin/v1/endpoints, …/deployments and …/queues have."""
    return {
        "endpoints": [endpoint_body(each, decisions.drained) for each in pools.endpoints()],
        "deployments": [*deployment_bodies(plans(), decisions)],
        "queues": queue_bodies(scheduler.states(tenants=MOST_TENANTS_SHOWN)),
    }


def routes(status: LiveStatus) -> APIRouter:
    """Not in the OpenAPI document: its readers expect answers that end."""
    router = APIRouter(include_in_schema=False)
    viewers = ConcurrencyLimit(MOST_VIEWERS, what="viewers of its live status")

    @router.get("/metrics/live")
    async def live() -> Response:
        return LiveStream(status, viewers)

    return router


class LiveStream(Response):
    """Lives as long as its client. Raises RateLimited: there are too many viewers."""

    def __init__(self, status: LiveStatus, viewers: ConcurrencyLimit) -> None:
        super().__init__()
        self._events = status.events(is_operator=current_caller.get().may(Scope.ADMIN))
        self._viewers = viewers

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        with self._viewers.permits():
            async with CancelOnDisconnect(receive), aclosing(self._events) as events:
                head = {"type": "http.response.start", "status": 200, "headers": [*SSE.headers]}
                await send(head)
                async for each in events:
                    await send({"type": "http.response.body", "body": each, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
