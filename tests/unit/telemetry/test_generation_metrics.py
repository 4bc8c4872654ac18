"""What a request counts when it has ended, by model, by tenant and by endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from proxy.domain.endpoints import EndpointState
from proxy.domain.errors import (
    EngineFailed,
    ForeignAnswer,
    GuidePending,
    ModelUnavailable,
    RateLimited,
)
from proxy.domain.identity import ALL_SCOPES, Caller, current_caller
from proxy.domain.interrupt import Cause
from proxy.domain.output import EngineTimes, FinishReason, TokenDelta, Usage
from proxy.domain.record import DURATION_BUCKETS_S, RequestRecord, Trace
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.domain.scheduling import QueueState
from proxy.telemetry.endpoint_metrics import (
    MOST_ENDPOINTS,
    OTHERS,
    EndpointMetrics,
    Outcome,
    Place,
)
from proxy.telemetry.generation_metrics import GenerationMetrics
from proxy.telemetry.metrics import Metrics, QueueMetrics
from tests.doubles.engine import CARD

REQUEST = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"))
TIMES = EngineTimes(prefill_s=0.02, decode_s=0.7)


class Counted:
    def __init__(self, prompt: int, completion: int) -> None:
        self.usage = Usage(prompt_tokens=prompt, completion_tokens=completion)


@pytest.fixture(autouse=True)
def caller() -> Iterator[None]:
    token = current_caller.set(Caller(tenant="acme", key_id="k", scopes=ALL_SCOPES))
    yield
    current_caller.reset(token)


def answered(metrics: Metrics, *streams: list[TokenDelta], **found) -> None:
    record = RequestRecord(**{"first_event_s": 0.3, "finish": FinishReason.STOP, **found})
    with metrics.generations.counted(record, REQUEST, CARD):
        for deltas in streams:
            record.engine_queues_s += [one.queue_s for one in deltas if one.queue_s is not None]
            record.engine_times += [one.times for one in deltas if one.times is not None]


def failed(metrics: Metrics, error: Exception, **found) -> None:
    counted = metrics.generations.counted(RequestRecord(**found), REQUEST, CARD)
    with pytest.raises(type(error)), counted:
        raise error


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_the_counts_and_times_of_a_request_and_of_its_streams():
    metrics = Metrics()
    stream = [TokenDelta((b"a",)), TokenDelta((b"b",), finish=FinishReason.STOP, times=TIMES)]
    found = {
        "counts": [Counted(70, 3), Counted(0, 2)],
        "gaps": [2, *[0] * len(DURATION_BUCKETS_S)],
        "token_times_s": [0.1, 0.2],
        "resends": 2,
        "pauses": [(Cause.LOST, 1.5)],
        "uncontinued": [Cause.STALLED],
    }
    answered(metrics, stream, stream, [TokenDelta((b"a",))], **found)
    expected = {
        "proxy_prompt_tokens_total": 70,
        "proxy_completion_tokens_total": 5,
        "proxy_request_prompt_tokens_sum": 70,
        "proxy_request_completion_tokens_sum": 5,
        "proxy_requests_resent_total": 2,
        "proxy_prefill_time_seconds_count": 2,
        "proxy_prefill_time_seconds_sum": 0.04,
        "proxy_decode_time_seconds_sum": 1.4,
        "proxy_inter_token_latency_seconds_count": 2,
        "proxy_time_per_output_token_seconds_count": 2,
        "proxy_continuation_pause_seconds_sum": 1.5,
        "proxy_requests_active": 0,
    }
    assert {name: value(metrics, name, model="demo") for name in expected} == expected
    for cause, result in (("lost", "continued"), ("stalled", "failed")):
        labels = {"model": "demo", "cause": cause, "result": result}
        assert value(metrics, "proxy_streams_continued_total", **labels) == 1


@pytest.mark.parametrize(
    ("prompt", "completion", "finish", "expected"),
    [
        (2000, 129, FinishReason.STOP, (1, 0)),
        (2001, 128, FinishReason.LENGTH, (0, 1)),
        (10, 10, FinishReason.TOOL_CALLS, (1, 1)),
        (10, 10, None, (1, 0)),  # abandoned
    ],
)
def test_only_short_prompts_and_completed_short_answers_count_for_their_objectives(
    prompt, completion, finish, expected
):
    metrics = Metrics()
    answered(metrics, counts=[Counted(prompt, completion)], finish=finish)
    names = "proxy_short_prompt_first_token_seconds", "proxy_short_answer_duration_seconds"
    assert tuple(value(metrics, f"{name}_count", model="demo") for name in names) == expected
    [bucket] = {value(metrics, f"{names[0]}_bucket", model="demo", le=le) for le in ("0.4", "0.8")}
    assert bucket == expected[0]


@pytest.mark.parametrize(
    ("in_proxy", "in_engine", "both"),
    [(None, None, 0.0), (2.0, None, 2.0), (None, 0.5, 0.5), (2.0, 0.5, 2.5)],
)
def test_a_requests_wait_is_that_in_the_proxy_and_in_the_engine(in_proxy, in_engine, both):
    metrics = Metrics()
    answered(metrics, [TokenDelta((b"a",), queue_s=in_engine)], queue_s=in_proxy)
    assert value(metrics, "proxy_request_queue_time_seconds_count", model="demo") == 1
    assert value(metrics, "proxy_request_queue_time_seconds_sum", model="demo") == both
    assert value(metrics, "proxy_tenant_queue_time_seconds_sum", tenant="acme") == both


def test_a_request_that_never_got_a_row_has_only_the_wait_that_it_had():
    metrics = Metrics()
    failed(metrics, RateLimited("full"))
    assert value(metrics, "proxy_request_queue_time_seconds_count", model="demo") == 0
    failed(metrics, RateLimited("too long"), queue_s=30.0)
    assert value(metrics, "proxy_request_queue_time_seconds_sum", model="demo") == 30


def test_a_tenants_requests_are_counted_by_what_they_were_to_it():
    metrics = Metrics()
    answered(metrics, counts=[Counted(70, 3)])
    answered(metrics, finish=None, first_event_s=None)
    failed(metrics, RateLimited("too many"))
    failed(metrics, EngineFailed("broken"))
    failed(metrics, RuntimeError("a bug"))
    found = {
        result: value(metrics, "proxy_tenant_requests_total", tenant="acme", result=result)
        for result in ("completed", "abandoned", "refused", "failed")
    }
    assert found == {"completed": 1, "abandoned": 1, "refused": 1, "failed": 2}
    assert value(metrics, "proxy_tenant_prompt_tokens_total", tenant="acme") == 70
    assert value(metrics, "proxy_tenant_completion_tokens_total", tenant="acme") == 3
    assert value(metrics, "proxy_tenant_time_to_first_token_seconds_count", tenant="acme") == 1


@pytest.mark.parametrize("is_sampled", [True, False])
def test_the_last_sampled_request_of_a_bucket_is_its_exemplar(is_sampled):
    metrics = Metrics()
    for number, ttft_s in ((1, 0.002), (2, 0.02), (3, 0.021), (4, 700.0)):
        trace = Trace(trace_id=number, span_id=1, is_sampled=is_sampled)
        answered(metrics, trace=trace, first_event_s=ttft_s)
    found = {
        (family.name, sample.labels["le"]): sample.exemplar.labels["trace_id"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.exemplar
    }
    name = "proxy_time_to_first_token_seconds"
    own = {bound: trace_id for (family, bound), trace_id in found.items() if family == name}
    expected = {"0.0025": f"{1:032x}", "0.025": f"{3:032x}", "+Inf": f"{4:032x}"}
    assert own == (expected if is_sampled else {})
    assert {family for family, _ in found} <= {name, "proxy_request_duration_seconds"}


QUEUE = "default/demo"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry) -> EndpointMetrics:
    return EndpointMetrics(registry, GenerationMetrics(registry, tenants=1).leave_uncharged)


def test_the_proxys_own_trials_have_a_cause_among_what_nobody_is_charged_for(registry, metrics):
    for tokens in (3, 1, 1):
        metrics.tried("demo", tokens)
    labels = {"model": "demo", "cause": "trial"}
    assert registry.get_sample_value("proxy_unbalanced_tokens_total", labels) == 5


def test_endpoints_beyond_the_bound_share_one_series(registry, metrics):
    for number in range(MOST_ENDPOINTS + 3):
        metrics.ejected(Place("west", f"10.0.0.1:{number}"))
    metrics.ended(Place("west", f"10.0.0.1:{MOST_ENDPOINTS + 1}"), Outcome.LOST, 7)
    others = {"pool": "west", "endpoint": OTHERS}
    value = registry.get_sample_value
    assert value("proxy_endpoint_ejections_total", others) == 3
    assert value("proxy_endpoint_tokens_total", others) == 7
    assert value("proxy_endpoint_streams_total", {**others, "outcome": "lost"}) == 1
    own = {"pool": "west", "endpoint": "10.0.0.1:0"}
    assert value("proxy_endpoint_ejections_total", own) == 1


def died(reason: str) -> ModelUnavailable:
    return ModelUnavailable("away", detail=f"vLLM's engine process has ended: {reason}")


OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "torch.OutOfMemoryError",
    "CUDA runtime error in cudaMallocAsync: out of memory",
    "cudaErrorMemoryAllocation",
    "Failed to allocate memory for requested buffer of size 4096",
    "MemoryError: Unable to allocate 3.2 GiB for an array",
    "std::bad_alloc",
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((EngineFailed("it failed", detail=reason), "out_of_memory") for reason in OF_MEMORY),
        *((died(reason), "out_of_memory") for reason in OF_MEMORY),
        (EngineFailed("it failed", detail="a kernel failed"), "failed"),
        (EngineFailed("it failed"), "failed"),
        (died("signal 11"), "unavailable"),
        (ForeignAnswer("away", detail="another's"), "foreign"),
        (GuidePending("later"), None),
        (RateLimited("out of memory"), None),
    ],
)
def test_failures_of_engines_are_counted_by_kind(registry, metrics, error, kind):
    metrics.failed(Place("west", "a:1"), error)
    found = {
        sample.labels["kind"]: sample.value
        for family in registry.collect()
        if family.name == "proxy_engine_failures"
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    assert found == ({} if kind is None else {kind: 1})


def test_what_no_endpoint_and_no_queue_has_any_more_goes_back_to_zero(registry, metrics):
    metrics.counted("west", {EndpointState.READY: 3, EndpointState.NOT_READY: 1})
    metrics.counted("west", {EndpointState.READY: 4})
    queues = QueueMetrics(registry)
    queues.counted([QueueState(queue="q", capacity=None, running=1, waiting=4)])
    queues.counted([])
    for name, labels, expected in (
        ("proxy_pool_endpoints", {"pool": "west", "state": "ready"}, 4),
        ("proxy_pool_endpoints", {"pool": "west", "state": "not_ready"}, 0),
        ("proxy_fair_queue_running", {"queue": "q"}, 0),
        ("proxy_fair_queue_waiting", {"queue": "q"}, 0),
    ):
        assert registry.get_sample_value(name, labels) == expected
