"""readiness: the registry follows the catalog."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from structlog.testing import capture_logs

from proxy.models.readiness import refresh
from proxy.models.registry import Registry
from tests.doubles.engine import FixedCatalog


def test_what_a_model_is_is_read_anew_without_a_loss_of_readiness():
    catalog, registry = FixedCatalog(), Registry({})
    asyncio.run(refresh(catalog, registry))
    known = registry.known("demo")
    asyncio.run(refresh(catalog, registry))
    assert registry.known("demo") is known
    catalog.facts = replace(catalog.facts, context_length=7)
    with capture_logs() as lines:
        for _ in range(3):
            asyncio.run(refresh(catalog, registry))
    assert registry.known("demo").facts.context_length == 7
    assert [line["event"] for line in lines] == ["ready"]


def test_the_registry_follows_what_the_catalog_says():
    catalog, registry = FixedCatalog("Triton is starting"), Registry({})

    def look() -> str | None:
        asyncio.run(refresh(catalog, registry))
        return registry.why_not_ready and str(registry.why_not_ready)

    assert look() == "Triton is starting"
    catalog.reason = None
    assert look() is None
    assert registry.known("demo").name == "demo"
    catalog.reason = "it died"
    assert look() == "it died"
    assert registry.known("demo").name == "demo"
    catalog.reason = None
    assert look() is None
