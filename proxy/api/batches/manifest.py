"""OpenAI's Batch API, with the files that it reads and writes."""

from __future__ import annotations

from proxy.api.manifest import Manifest, Route
from proxy.domain.identity import Scope

FILES, BATCHES = "/v1/files", "/v1/batches"
# What a line may ask for.
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings")
_ROUTE = Route(need=Scope.BATCHES)

BATCH = Manifest(
    routes={
        FILES: _ROUTE,
        f"{FILES}/{{file_id}}": _ROUTE,
        f"{FILES}/{{file_id}}/content": _ROUTE,
        BATCHES: _ROUTE,
        f"{BATCHES}/{{batch_id}}": _ROUTE,
        f"{BATCHES}/{{batch_id}}/cancel": Route(need=Scope.BATCHES, only_reads=True),
    }
)
