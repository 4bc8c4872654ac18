"""Lets pages of other origins call the API from a browser (CORS). Called by `app`."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from triton_openai.proxy.api.answers import lifecycle_headers, queue_headers
from triton_openai.proxy.api.idempotency import layer
from triton_openai.proxy.api.rate_limit_headers import EXPOSED

EXPOSED_HEADERS = (
    *EXPOSED,
    *("x-request-id", "retry-after", "retry-after-ms", "x-should-retry"),
    *("x-attempts", "x-resends", "x-continued", "x-unenforced-keywords", "x-fallback-from"),
    *queue_headers.NAMES,
    "x-priority-capped",
    *lifecycle_headers.NAMES,
    *layer.EXPOSED,
)


def layers(origins: tuple[str, ...]) -> list[Middleware]:
    """Outermost, so that a browser may read errors too. Keys travel in a header, not in cookies."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
    ]
