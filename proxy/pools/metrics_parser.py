"""Reads what Triton's metrics page says of the engines' load.

The page may be of any size and content: what is read at once is one chunk, and what is kept are
the last value of each model and kind, up to a bound.
"""

from __future__ import annotations

import math
import re

LONGEST_LINE = 2_000
MOST_SAMPLES = 2_000
REQUESTS = b"nv_trt_llm_request_metrics"
KV_BLOCKS = b"nv_trt_llm_kv_cache_block_metrics"
# Families of our engines before they exported NVIDIA's: the kind that each stands for.
OLDER = {
    b"engine_requests_waiting": "waiting",
    b"engine_rows_decoding": "decoding",
    b"engine_rows_prefilling": "prefilling",
}
KINDS = {
    REQUESTS: (b"request_type", {b"waiting", b"scheduled", b"active"}),
    KV_BLOCKS: (b"kv_cache_block_type", {b"fraction", b"used", b"max"}),
}
SAMPLE = re.compile(
    rb"\n(nv_trt_llm_(?:request|kv_cache_block)_metrics|engine_(?:requests_waiting|rows_\w{8,10}))"
    rb"\{([^{}\n]{0,1000})\} ([^ \n]{1,40})(?= |\n)"
)
LABEL = re.compile(rb'(?:\A|,)(\w{1,40})="([^"\\]{0,300})"')
Key = tuple[str, str, str]
"""The family's kind ("requests", "kv", "older"), the model, and what is measured."""


class MetricsParser:
    """push(chunk) as it arrives, then `samples`. Lines over LONGEST_LINE are skipped."""

    def __init__(self) -> None:
        self._rest = b"\n"
        self.samples: dict[Key, float] = {}

    def push(self, chunk: bytes) -> None:
        """Costs less than a millisecond for 64 kB of ordinary text."""
        text = self._rest + chunk
        end = text.rfind(b"\n") + 1
        for found in SAMPLE.finditer(text, 0, end):
            self._add(found.group(1), found.group(2), found.group(3))
        # The newline before it begins the next line; what is too long can match nothing.
        rest = text[max(0, end - 1) :]
        self._rest = rest if len(rest) <= LONGEST_LINE else b"#"

    def _add(self, family: bytes, labels: bytes, value: bytes) -> None:
        label = dict(LABEL.findall(labels))
        key = _key(family, label)
        if key is None or (key not in self.samples and len(self.samples) >= MOST_SAMPLES):
            return
        try:
            number = float(value)
        except ValueError:
            return
        if math.isfinite(number) and number >= 0:
            self.samples[key] = number


def _key(family: bytes, label: dict[bytes, bytes]) -> Key | None:
    model = label.get(b"model", b"").decode("utf-8", "replace")
    if (kind := OLDER.get(family)) is not None:
        return "older", model, kind
    if family not in KINDS:
        return None
    name, wanted = KINDS[family]
    if (what := label.get(name, b"")) not in wanted:
        return None
    return "requests" if family == REQUESTS else "kv", model, what.decode()
