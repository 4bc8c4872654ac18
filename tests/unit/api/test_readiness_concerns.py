"""/health/ready while some of several models have no endpoint."""

from __future__ import annotations

from types import SimpleNamespace

from fastapi import FastAPI
from fastapi.testclient import TestClient

from proxy.api import monitoring
from proxy.domain.model import LoadedModel
from proxy.models.registry import Registry
from proxy.telemetry.metrics import Metrics
from tests.doubles.engine import FACTS


def test_models_without_an_endpoint_are_counted_and_not_named_while_others_are_served():
    away = {"secret-project"}
    registry = Registry({}, is_available=lambda card: card.triton_model not in away)
    registry.serve([LoadedModel(name=name, facts=FACTS) for name in ("demo", "secret-project")])
    app = FastAPI()
    app.include_router(monitoring.routes(registry, Metrics(), SimpleNamespace(outage=None)))
    client = TestClient(app)
    answer = client.get("/health/ready")
    concerns = ["1 of 2 models have no endpoint that is ready"]
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "concerns": concerns})
    away.clear()
    assert client.get("/health/ready").json() == {"status": "ready"}
