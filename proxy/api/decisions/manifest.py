"""OpenAI's Decisions API."""

from __future__ import annotations

from proxy.api.manifest import Manifest, Route
from proxy.domain.identity import Scope

PATH = "/v1/decisions"
DECISIONS = Manifest(routes={PATH: Route(need=Scope.CHAT, operation="decisions")})
