"""A real Prometheus takes /metrics as OpenMetrics, with exemplars, and every family of it."""

from __future__ import annotations

from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import yaml

from proxy.domain.output import FinishReason
from proxy.domain.record import RequestRecord, Trace
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.metrics import Metrics
from tests.doubles.engine import CARD
from tests.fixtures import prometheus
from tests.fixtures.stack import eventually

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def target():
    """An address whose /metrics has one request, and the media types of its answers."""
    metrics, kinds = Metrics(), set()
    trace = Trace(trace_id=TRACE_ID, span_id=1, parent_id=None, is_sampled=True)
    request = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"))
    record = RequestRecord(trace=trace, first_event_s=0.2, finish=FinishReason.STOP)
    with metrics.generations.counted(record, request, CARD):
        pass
    exposition = Exposition(metrics)

    def answer(environ, start_response):
        text, kind = exposition.exposed(environ.get("HTTP_ACCEPT", ""))
        kinds.add(kind.partition(";")[0])
        start_response("200 OK", [("Content-Type", kind)])
        return [text]

    with make_server("127.0.0.1", 0, answer, handler_class=Quiet) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", kinds
        server.shutdown()
        thread.join()


@prometheus.needs_prometheus
def test_prometheus_has_the_counts_and_the_exemplars(target, tmp_path):
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "proxy", "static_configs": [{"targets": [target[0]]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    count = "proxy_request_duration_seconds_count"
    with prometheus.running(tmp_path) as found:
        eventually(lambda: found.query(count), 20, "it has scraped")
        assert [found.query(name)[0]["value"][1] for name in (count, "up")] == ["1", "1"]
        name = "proxy_time_to_first_token_seconds_bucket"
        span = {"query": name, "start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"}
        [series] = found._data("query_exemplars", **span)
    assert target[1] == {"application/openmetrics-text"}
    assert series["seriesLabels"]["le"] == "0.25"
    [exemplar] = series["exemplars"]
    assert (exemplar["labels"], exemplar["value"]) == ({"trace_id": f"{TRACE_ID:032x}"}, "0.2")
