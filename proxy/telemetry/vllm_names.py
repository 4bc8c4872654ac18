"""Our metrics under vLLM's names, for dashboards that were made for it.

Nothing is counted twice: `exposition` derives them when it is asked. Names and labels are those of
vllm/v1/metrics/loggers.py, see tests/upstream/vllm_metrics.json. Buckets are ours, and there is no
label `engine`: the proxy does not number its engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.samples import Sample

Labels = Mapping[str, str]
# The labels of a sample of ours -> those of vLLM's; None drops the sample.
Relabel = Callable[[Labels], dict[str, str] | None]
REASONS = {"stop": "stop", "tool_calls": "stop", "length": "length", "abandoned": "abort"}


def derived(families: Iterable[Metric]) -> Iterator[Metric]:
    """vLLM's families, from all of ours."""
    for family in families:
        for name, relabel in NAMES.get(family.name, ()):
            yield _renamed(family, name, relabel)


def _renamed(family: Metric, name: str, relabel: Relabel) -> Metric:
    """Samples that get the same labels are added up."""
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in family.samples:
        labels = relabel(sample.labels)
        if labels is None:
            continue
        renamed = name + sample.name.removeprefix(family.name)
        key = renamed, tuple(sorted(labels.items()))
        value = sample.value + (samples[key].value if key in samples else 0.0)
        samples[key] = Sample(renamed, labels, value, exemplar=sample.exemplar)
    found = Metric(name, family.documentation, family.type)
    found.samples = list(samples.values())
    return found


def _by_model(labels: Labels) -> dict[str, str] | None:
    return {("model_name" if key == "model" else key): value for key, value in labels.items()}


def _by_reason(labels: Labels) -> dict[str, str] | None:
    """Requests that ended with an error are not among vLLM's successful ones."""
    reason = REASONS.get(labels["outcome"])
    return None if reason is None else {"model_name": labels["model"], "finished_reason": reason}


def _by_queue(labels: Labels) -> dict[str, str] | None:
    """A queue is `pool/Triton model`; the latter has the public name, unless a deployment names
    another one.
    """
    return {"model_name": labels["queue"].rpartition("/")[2]}


NAMES: Mapping[str, tuple[tuple[str, Relabel], ...]] = {
    "proxy_fair_queue_running": (("vllm:num_requests_running", _by_queue),),
    "proxy_fair_queue_waiting": (("vllm:num_requests_waiting", _by_queue),),
    "proxy_time_to_first_token_seconds": (("vllm:time_to_first_token_seconds", _by_model),),
    "proxy_inter_token_latency_seconds": (
        ("vllm:inter_token_latency_seconds", _by_model),
        ("vllm:time_per_output_token_seconds", _by_model),  # its name until 2025
    ),
    "proxy_time_per_output_token_seconds": (
        ("vllm:request_time_per_output_token_seconds", _by_model),
    ),
    "proxy_request_duration_seconds": (("vllm:e2e_request_latency_seconds", _by_model),),
    "proxy_request_queue_time_seconds": (("vllm:request_queue_time_seconds", _by_model),),
    "proxy_prefill_time_seconds": (("vllm:request_prefill_time_seconds", _by_model),),
    "proxy_decode_time_seconds": (("vllm:request_decode_time_seconds", _by_model),),
    "proxy_prompt_tokens": (("vllm:prompt_tokens", _by_model),),
    "proxy_cached_prompt_tokens": (("vllm:prompt_tokens_cached", _by_model),),
    "proxy_completion_tokens": (("vllm:generation_tokens", _by_model),),
    "proxy_request_prompt_tokens": (("vllm:request_prompt_tokens", _by_model),),
    "proxy_request_completion_tokens": (("vllm:request_generation_tokens", _by_model),),
    "proxy_requests": (("vllm:request_success", _by_reason),),
}
