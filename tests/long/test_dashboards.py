"""Every panel shows something: a real Prometheus, and a real proxy and tritonserver under load."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.deploy.test_metrics import DASHBOARDS, filled, selectors
from tests.fixtures import prometheus
from tests.fixtures.stack import HANG_S, Stack, eventually

pytestmark = prometheus.needs_prometheus
THREADS = 2
GPU = "a GPU"
# Metrics that have no series here, and what they need. All other queries must have one.
UNSEEN = {
    "DCGM_FI_": GPU,
    "nv_gpu_": GPU,
    "ALERTS": "an alert that fires",
    "proxy_limit_refusals_total": "a caller over a limit",
    "proxy_fair_queue_refusals_total": "a full queue",
    "proxy_fair_queue_preemptions_total": "requests of two priorities, and no free row",
    "proxy_requests_resent_total": "a Triton that dies",
    "proxy_streams_continued_total": "a Triton that dies",
    "proxy_continuation_pause_seconds_bucket": "a Triton that dies",
    "proxy_endpoint_ejections_total": "an endpoint that fails again and again",
    "proxy_endpoint_expected_cached_tokens_total": "a choice between endpoints",
    "proxy_shadow_": "a shadow deployment",
    "proxy_authentications_total": "a proxy with keys",
    "proxy_authentication_source_up": "a store of keys, or an issuer of tokens",
}


def chat(words: str, **more: object) -> dict[str, object]:
    return {"model": "demo", "messages": [{"role": "user", "content": words}], **more}


def send_some(url: str, number: int, thread: int) -> None:
    """A stream whose prompt begins as others do, a whole answer under a key, a prompt that is too
    long for Triton, and a model that does not exist.
    """
    path, words = f"{url}/v1/chat/completions", "Tell me about the shop at the street's end. " * 5
    with httpx.stream("POST", path, json=chat(f"{words}{number}", stream=True)) as answer:
        assert answer.status_code == 200
        for _ in answer.iter_lines():
            pass
    key = {"Idempotency-Key": f"dashboards-{thread}-{number}"}
    assert httpx.post(path, json=chat(words), headers=key).status_code == 200
    assert httpx.post(path, json=chat("Hello! " * 3_000)).status_code == 400
    assert httpx.post(path, json={**chat("Hello!"), "model": "unheard-of"}).status_code == 404


@contextmanager
def load(url: str) -> Iterator[list[threading.Thread]]:
    """The threads, which end early if an answer is not as expected."""
    ended = threading.Event()

    def send(thread: int) -> None:
        number = 0
        while not ended.is_set():
            send_some(url, number, thread)
            number += 1

    threads = [threading.Thread(target=send, args=(each,)) for each in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        ended.set()
        for thread in threads:
            thread.join(HANG_S)


@pytest.fixture(scope="module")
def watched(stack: Stack, tmp_path_factory) -> Iterator[prometheus.Prometheus]:
    targets = {
        "triton-openai-proxy": f"127.0.0.1:{stack.port}",
        "triton-openai-triton": f"127.0.0.1:{stack.triton_metrics_port}",
    }
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus.scraping(targets, folder) as found, load(stack.url) as threads:
        eventually(lambda: len(found.query("up == 1")) == 2, 20, "a scrape of both")
        yield found
        assert all(thread.is_alive() for thread in threads)


def panels() -> Iterator[tuple[str, str]]:
    for dashboard in DASHBOARDS:
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                where = f"{dashboard['title']}: {panel['title']} ({target['legendFormat']})"
                yield where, filled(target["expr"], "30s")
        for variable in dashboard["templating"]["list"]:
            metric, label = variable["query"]["query"][len("label_values(") : -1].split(", ")
            yield f"{dashboard['title']}: ${label}", f"{metric}{{{label}!=''}}"


def unseen(expression: str) -> set[str]:
    """The rows of UNSEEN that it needs."""
    names = [selector.name for selector in selectors(expression)]
    return {start for start in UNSEEN if any(name.startswith(start) for name in names)}


@pytest.mark.parametrize(
    "expression",
    [pytest.param(text, id=where) for where, text in panels() if not unseen(text)],
)
def test_a_panel_has_a_series_with_a_number(watched, expression):
    def numbers() -> list[float]:
        return [float(series["value"][1]) for series in watched.query(expression)]

    eventually(
        lambda: any(math.isfinite(number) for number in numbers()), 15, f"a number of {expression}"
    )


def test_what_is_not_shown_here_is_asked_for_somewhere():
    assert {start for _, expression in panels() for start in unseen(expression)} == set(UNSEEN)
