"""Replaces a front's address by the one that it forwards, and keeps the front's own as `peer`.

uvicorn would only replace it, and a header of a front may be believed for the front's address only.
"""

from __future__ import annotations

import os
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

TRUSTED = "127.0.0.1,::1"  # as uvicorn's own default


class KeepsPeer:
    """Adds `peer` to the scope of each connection: address and port of its socket."""

    def __init__(self, app: Any) -> None:
        trusted = os.environ.get("FORWARDED_ALLOW_IPS", TRUSTED)
        self._app = ProxyHeadersMiddleware(app, trusted_hosts=trusted)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            scope["peer"] = scope.get("client")
        await self._app(scope, receive, send)
