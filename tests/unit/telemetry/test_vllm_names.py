"""Our metrics under vLLM's names: names, types and labels are those of vLLM's source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.domain.errors import RateLimited
from proxy.domain.output import EngineTimes, FinishReason, TokenDelta, Usage
from proxy.domain.record import RequestRecord
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.domain.scheduling import QueueState
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.metrics import Metrics
from tests.doubles.engine import CARD

RECORD = json.loads((Path(__file__).parents[2] / "upstream" / "vllm_metrics.json").read_text())
OURS = {
    "vllm:time_to_first_token_seconds": "proxy_time_to_first_token_seconds",
    "vllm:e2e_request_latency_seconds": "proxy_request_duration_seconds",
    "vllm:inter_token_latency_seconds": "proxy_inter_token_latency_seconds",
    "vllm:request_decode_time_seconds": "proxy_decode_time_seconds",
    "vllm:request_prompt_tokens": "proxy_request_prompt_tokens",
}


class Counted:
    @property
    def usage(self) -> Usage:
        return Usage(prompt_tokens=30, completion_tokens=3, cached_tokens=8)


@pytest.fixture
def metrics() -> Metrics:
    """Four requests that ended in four ways, and a queue."""
    metrics = Metrics()
    for finish in (FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.LENGTH, None):
        record = RequestRecord(first_event_s=0.2, finish=finish, counts=[Counted()])
        request = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"))
        with metrics.generations.counted(record, request, CARD):
            stream = record.pace(counts_gaps=True)
            stream.see(TokenDelta((b"a",), queue_s=0.1))
            stream.see(TokenDelta((b"b",), times=EngineTimes(prefill_s=0.02, decode_s=0.7)))
    refused = metrics.generations.counted(RequestRecord(), request, CARD)
    with pytest.raises(RateLimited), refused:
        raise RateLimited("too many")
    state = QueueState(queue="west/demo", capacity=4, running=3, waiting=2)
    other = QueueState(queue="east/demo", capacity=4, running=1, waiting=0)
    metrics.queues.counted([state, other])
    return metrics


def families(metrics: Metrics, **fields) -> dict:
    text, _ = Exposition(metrics, **fields).exposed("")
    return {one.name: one for one in text_string_to_metric_families(text.decode())}


def test_they_are_vllms_with_its_types_and_labels(metrics):
    found = families(metrics, has_vllm_names=True)
    theirs = {name: one for name, one in found.items() if name.startswith("vllm:")}
    assert theirs.keys() == RECORD["metrics"].keys()
    for name, family in theirs.items():
        recorded = RECORD["metrics"][name]
        assert family.type == recorded["type"]
        labels = {"model_name", *recorded.get("labels", ())}
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == labels
            assert sample.labels["model_name"] == "demo"


def test_without_the_setting_there_is_none(metrics):
    assert not [name for name in families(metrics) if name.startswith("vllm:")]


@pytest.mark.parametrize(("name", "ours"), OURS.items())
def test_a_histogram_has_the_values_of_ours(metrics, name, ours):
    found = families(metrics, has_vllm_names=True)
    values = {
        (one.name.removeprefix(name), one.labels.get("le"), one.value)
        for one in found[name].samples
    }
    assert values == {
        (one.name.removeprefix(ours), one.labels.get("le"), one.value)
        for one in found[ours].samples
    }
    assert any(value for _, _, value in values)


def test_finish_reasons_are_vllms_and_errors_are_no_successes(metrics):
    success = families(metrics, has_vllm_names=True)["vllm:request_success"]
    assert {one.name for one in success.samples} == {"vllm:request_success_total"}
    reasons = {one.labels["finished_reason"]: one.value for one in success.samples}
    assert reasons == {"stop": 2, "length": 1, "abort": 1}
    assert reasons.keys() <= set(RECORD["finished_reasons"]["values"])


def test_counters_and_queues_of_all_pools_are_added_up(metrics):
    found = families(metrics, has_vllm_names=True)
    values = {name: one.samples[0].value for name, one in found.items() if len(one.samples) == 1}
    assert values["vllm:prompt_tokens"] == 4 * 30
    assert values["vllm:prompt_tokens_cached"] == 4 * 8
    assert values["vllm:generation_tokens"] == 4 * 3
    assert values["vllm:num_requests_running"] == 4
    assert values["vllm:num_requests_waiting"] == 2
