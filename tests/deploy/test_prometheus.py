"""A real Prometheus evaluates our rules, understands every query of a panel, and gets exemplars.

What panels show under load: tests/long/test_dashboards.py.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxy.domain.output import FinishReason
from proxy.domain.record import RequestRecord, Trace
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.telemetry.metrics import Metrics
from tests.deploy.test_metrics import ALERTS, RULES, expressions
from tests.doubles.engine import CARD
from tests.fixtures import prometheus
from tests.fixtures.stack import eventually

pytestmark = prometheus.needs_prometheus


@contextmanager
def served(metrics: Metrics) -> Iterator[str]:
    """Its address. The route of the proxy does the same."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, media_type = metrics.exposed(self.headers["accept"])
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


def test_it_keeps_the_trace_of_a_sampled_request(metrics, scraping):
    """So it takes OpenMetrics: only that format has exemplars."""
    trace = Trace(trace_id=0xAF76, span_id=1, is_sampled=True)
    record = RequestRecord(trace=trace, first_event_s=0.2, finish=FinishReason.STOP)
    request = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"))
    with metrics.generations.counted(record, request, CARD):
        pass
    name = "proxy_time_to_first_token_seconds_bucket"
    eventually(lambda: scraping.exemplars(name), 20, "an exemplar is scraped")
    [found] = scraping.exemplars(name)
    assert found["seriesLabels"]["le"] == "0.25"
    [exemplar] = found["exemplars"]
    assert (exemplar["labels"], exemplar["value"]) == ({"trace_id": f"{0xAF76:032x}"}, "0.2")
