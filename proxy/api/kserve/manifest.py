"""KServe's protocol. Its routes write their errors themselves, and are in no OpenAPI document."""

from __future__ import annotations

from proxy.api.manifest import Manifest, Open, Route
from proxy.domain.identity import Scope

KSERVE = Manifest(
    routes={
        "/v2": Route(need=Scope.KSERVE),
        "/v2/": Route(need=Scope.KSERVE),
        "/v2/health/": Route(need=Open.ANYBODY),
    }
)
