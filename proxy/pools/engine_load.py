"""Reads an endpoint's load from its metrics port, once a second."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import httpx
import structlog

from proxy.domain.endpoints import EngineLoad

LONGEST_LINE = 2_000
EVERY_S = 1.0
STALE_S = 3.0
CHUNK = 65_536
LARGEST_PAGE = 4_000_000
MOST_MODELS = 500
KINDS = {
    b"nv_trt_llm_request_metrics": (b"request_type", {b"waiting", b"scheduled", b"active"}),
    b"nv_trt_llm_kv_cache_block_metrics": (b"kv_cache_block_type", {b"fraction", b"used", b"max"}),
}
SAMPLE = re.compile(
    rb"\n(nv_trt_llm_(?:request|kv_cache_block)_metrics)"
    rb"\{([^{}\n]{0,1000})\} ([^ \n]{1,40})(?= |\n)"
)
LABEL = re.compile(rb'(?:\A|,)(\w{1,40})="([^"\\]{0,300})"')


class MetricsParser:
    """push(chunk) as it arrives, then `models`. Lines over LONGEST_LINE are skipped.

    models: by model, the value of each of the kinds of KINDS.
    """

    def __init__(self) -> None:
        self._rest = b"\n"
        self.models: dict[str, dict[bytes, float]] = {}

    def push(self, chunk: bytes) -> None:
        """Costs less than a millisecond for 64 kB of ordinary text."""
        text = self._rest + chunk
        end = text.rfind(b"\n") + 1
        for found in SAMPLE.finditer(text, 0, end):
            self._add(found.group(1), dict(LABEL.findall(found.group(2))), found.group(3))
        # The newline before it begins the next line; what is too long can match nothing.
        rest = text[max(0, end - 1) :]
        self._rest = rest if len(rest) <= LONGEST_LINE else b"#"

    def _add(self, family: bytes, labels: dict[bytes, bytes], value: bytes) -> None:
        label, kinds = KINDS[family]
        kind = labels.get(label, b"")
        model = labels.get(b"model", b"").decode("utf-8", "replace")
        if kind not in kinds or (model not in self.models and len(self.models) >= MOST_MODELS):
            return
        try:
            number = float(value)
        except ValueError:
            return
        if math.isfinite(number) and number >= 0:
            self.models.setdefault(model, {})[kind] = number


def load_in(values: Mapping[bytes, float]) -> EngineLoad:
    """The load of one model."""
    fraction, most, used = values.get(b"fraction"), values.get(b"max"), values.get(b"used")
    if fraction is None and most and used is not None:
        fraction = used / most
    return EngineLoad(
        waiting=_count(values.get(b"waiting")),
        running=_count(values.get(b"scheduled", values.get(b"active"))),
        kv_in_use=None if fraction is None else min(1.0, fraction),
        is_stale=False,
    )


def _count(value: float | None) -> int | None:
    return None if value is None else int(min(value, 1e9))


def total(loads: Collection[EngineLoad]) -> EngineLoad:
    """Sums of requests, and the fullest KV cache."""
    waiting = [one.waiting for one in loads if one.waiting is not None]
    running = [one.running for one in loads if one.running is not None]
    kv_in_use = [one.kv_in_use for one in loads if one.kv_in_use is not None]
    return EngineLoad(
        waiting=sum(waiting) if waiting else None,
        running=sum(running) if running else None,
        kv_in_use=max(kv_in_use, default=None),
        is_stale=False,
    )


logger = structlog.get_logger(__name__)

UNKNOWN = EngineLoad(is_stale=False)
"""Never read: nothing is reported, and the endpoint does not count as full."""


class PageTooLarge(Exception):
    """The metrics page exceeds LARGEST_PAGE."""


class LoadReader:
    """The load of one endpoint's engines.

    url: of its metrics page. clock: seconds, monotonic. Until the page has been read once the load
    is UNKNOWN: an endpoint without a reachable metrics port stays usable, and is chosen by what
    this process sends to it. Afterwards a value older than STALE_S is stale, and the endpoint
    counts as full: something has happened to it.
    """

    def __init__(
        self,
        url: str,
        client: httpx.AsyncClient,
        *,
        clock: Callable[[], float],
        timeout_s: float = EVERY_S,
    ) -> None:
        self._url = url
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s
        self._read_at_s: float | None = None
        self._total = UNKNOWN
        self._by_model: Mapping[str, EngineLoad] = {}
        self._failure: str | None = None

    @property
    def load(self) -> EngineLoad:
        """The load of all models together."""
        return self._aged(self._total)

    def load_of(self, triton_model: str) -> EngineLoad:
        """Of one engine, by the name that its metrics have; UNKNOWN if they do not name it."""
        return self._aged(self._by_model.get(triton_model, UNKNOWN))

    async def read(self) -> None:
        """Reads once. Logs a failure when it begins, and the first success after it."""
        try:
            models = await asyncio.wait_for(self._models(), self._timeout_s)
        except (httpx.HTTPError, PageTooLarge, TimeoutError, asyncio.TimeoutError) as error:
            self._failed(str(error) or f"no answer within {self._timeout_s} s")
            return
        if self._failure is not None:
            logger.info("metrics of an endpoint can be read again", url=self._url)
        self._failure = None
        self._by_model = {name: load_in(values) for name, values in models.items()}
        self._total = total(self._by_model.values())
        self._read_at_s = self._clock()

    async def _models(self) -> Mapping[str, Mapping[bytes, float]]:
        parser, size = MetricsParser(), 0
        headers = {"Accept-Encoding": "identity"}  # bounds the text, not only what arrives
        async with self._client.stream("GET", self._url, headers=headers) as response:
            response.raise_for_status()
            async for chunk in response.aiter_raw(CHUNK):
                size += len(chunk)
                if size > LARGEST_PAGE:
                    raise PageTooLarge(f"it is larger than {LARGEST_PAGE} bytes")
                parser.push(chunk)
                await asyncio.sleep(0)
        return parser.models

    def _failed(self, reason: str) -> None:
        if self._failure is None:
            logger.warning(
                "metrics of an endpoint cannot be read",
                url=self._url,
                reason=reason,
                advice="let the proxy reach Triton's metrics port, or set TRITON_METRICS_PORT; "
                "load is guessed until then",
            )
        self._failure = reason

    def _aged(self, load: EngineLoad) -> EngineLoad:
        if self._read_at_s is None:
            return UNKNOWN
        if self._clock() - self._read_at_s <= STALE_S:
            return load
        return replace(load, is_stale=True)
