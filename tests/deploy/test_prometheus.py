"""A real Prometheus evaluates our rules and understands every query of a panel.

What panels show under load: tests/server/test_dashboards.py.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from proxy.telemetry.exposition import Exposition

from proxy.telemetry.metrics import Metrics
from tests.deploy.test_metrics import ALERTS, RULES, expressions
from tests.fixtures import prometheus
from tests.fixtures.stack import eventually

pytestmark = prometheus.needs_prometheus


@contextmanager
def served(metrics: Metrics) -> Iterator[str]:
    """Its address. The route of the proxy does the same."""
    exposition = Exposition(metrics)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, media_type = exposition.exposed(self.headers["accept"])
            self.send_response(200)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture(scope="module")
def scraping(metrics, tmp_path_factory) -> Iterator[prometheus.Prometheus]:
    with served(metrics) as address:
        targets = {"triton-openai-proxy": address}
        with prometheus.scraping(targets, tmp_path_factory.mktemp("prometheus")) as found:
            eventually(lambda: found.query("up == 1"), 20, "a scrape")
            yield found


@pytest.mark.parametrize("expression", sorted({each for _, each in expressions()}))
def test_it_understands_every_query(scraping, expression):
    """promql-parser, which test_metrics uses, is another program's grammar, and knows no types."""
    scraping.query(expression)


def test_every_rule_is_evaluated_without_an_error(scraping):
    def evaluated() -> bool:
        return all(rule["health"] == "ok" for rule in scraping.rules())

    eventually(evaluated, 20, "evaluations of all rules")
    named = [rule["name"] for rule in scraping.rules()]
    written = [rule.get("alert") or rule["record"] for group in RULES for rule in group["rules"]]
    assert sorted(named) == sorted(written)
    assert {rule["alert"] for rule in ALERTS} <= set(named)


def test_links_to_the_runbook_are_whole(metrics, scraping):
    """The external label stands before the anchor in an alert that fires."""

    def fires() -> list[str]:
        metrics.generations.requests.labels("demo", "engine_stalled").inc()
        found = [
            alert for alert in scraping.alerts() if alert["labels"]["alertname"] == "EngineStalled"
        ]
        return [alert["annotations"]["runbook_url"] for alert in found]

    eventually(fires, 20, "an alert")
    assert fires() == ["https://docs.example.com/triton-openai/runbook.html#enginestalled"]
