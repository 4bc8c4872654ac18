"""readiness: the registry follows the catalog."""

from __future__ import annotations

import asyncio

from proxy.readiness import refresh
from proxy.registry import Registry
from tests.doubles.engine import FixedCatalog


def test_the_registry_follows_what_the_catalog_says():
    catalog, registry = FixedCatalog("Triton is starting"), Registry({})

    def look() -> str | None:
        asyncio.run(refresh(catalog, registry))
        return registry.why_not_ready

    assert look() == "Triton is starting"
    catalog.reason = None
    assert look() is None
    assert registry.card("demo").name == "demo"
    catalog.reason = "it died"
    assert look() == "it died"
    assert registry.known("demo").name == "demo"
    catalog.reason = None
    assert look() is None
