"""A real Prometheus takes /metrics as OpenMetrics, with exemplars, and every family of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
import yaml
from proxy.telemetry.exposition import Exposition

from proxy.domain.output import FinishReason
from proxy.domain.record import RequestRecord, Trace
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.telemetry.metrics import Metrics
from tests.doubles.engine import CARD
from tests.fixtures.stack import HANG_S, eventually, free_port

PROMETHEUS = shutil.which("prometheus")
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus")


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


@pytest.fixture
def prometheus(target, tmp_path: Path):
    """The address of a Prometheus that scrapes the target."""
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "proxy", "static_configs": [{"targets": [target[0]]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        PROMETHEUS,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={address}",
        "--enable-feature=exemplar-storage",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    yield f"http://{address}/api/v1"
    process.terminate()
    process.wait(HANG_S)


def asked(prometheus: str, what: str, **parameters: str) -> list:
    try:
        answer = httpx.get(f"{prometheus}/{what}", params=parameters, timeout=HANG_S).json()
    except httpx.TransportError:
        return []
    data = answer.get("data", [])
    return data["result"] if isinstance(data, dict) else data


def test_prometheus_has_the_counts_and_the_exemplars(target, prometheus):
    count = "proxy_request_duration_seconds_count"
    eventually(lambda: asked(prometheus, "query", query=count), 20, "it has scraped")
    [counted] = asked(prometheus, "query", query=count)
    assert counted["value"][1] == "1"
    [up] = asked(prometheus, "query", query="up")
    assert up["value"][1] == "1"
    assert target[1] == {"application/openmetrics-text"}
    name = "proxy_time_to_first_token_seconds_bucket"
    span = {"query": name, "start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"}
    [found] = asked(prometheus, "query_exemplars", **span)
    assert found["seriesLabels"]["le"] == "0.25"
    [exemplar] = found["exemplars"]
    assert (exemplar["labels"], exemplar["value"]) == ({"trace_id": f"{TRACE_ID:032x}"}, "0.2")
