"""legacy.refusals: options that plans lack, and those that only plans have."""

from __future__ import annotations

import pytest

from build_engines.gpu.legacy import refusals as legacy_refusals
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.refusals import Refusal, refusals

PLAN = {"engine": "plan"}


def refused(given: dict) -> list[Refusal]:
    """As models_file reads the rules."""
    options = GpuOptions.model_validate(given)
    return [*refusals(options), *legacy_refusals.refusals(options)]


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        ({"quantization": "int8_sq"}, "quantization", "reads fp8, nvfp4, int4_awq, w4a8_awq"),
        ({"quantization": "int4_wo"}, "quantization", "or engine: plan"),
        ({"quantization": "int8_wo"}, "quantization", "PyTorch runtime"),
        (
            {**PLAN, "quantization": "int8_wo", "calibration": {"samples": 8}},
            "calibration",
            "these options measure no texts",
        ),
        (
            {**PLAN, "quantization": "int4_awq", "calibration": {"samples": 64}},
            "calibration.samples",
            "measures 32 texts for AWQ at most",
        ),
        ({**PLAN, "llm_args": {"x": 1}}, "llm_args", "those of the PyTorch runtime"),
        ({**PLAN, "attention_dp": True, "tensor_parallel": 2}, "attention_dp", "only the PyTorch"),
        ({"kv_cache": {"dtype": "int8"}}, "kv_cache.dtype", "no int8 KV cache"),
        ({**PLAN, "kv_cache": {"dtype": "int8"}}, "kv_cache.dtype", "set both to false"),
        (
            {**PLAN, "kv_cache": {"dtype": "fp8", "reuse": False}},
            "kv_cache.dtype",
            "need paged attention over prompts",
        ),
        (
            {**PLAN, "quantization": "fp8", "tensor_parallel": 2, "expert_parallel": 2},
            "expert_parallel",
            "quantize.py shards experts by tensor only",
        ),
        ({**PLAN, "guided_decoding": "llguidance"}, "guided_decoding", "use xgrammar"),
        ({**PLAN, "speculative": {"method": "ngram"}}, "speculative.method", "lookahead only"),
        ({"speculative": {"method": "lookahead"}}, "speculative.method", "use ngram"),
        (
            {**PLAN, "quantization": "fp8", "plan": {"gemm_plugin": "auto"}},
            "plan.gemm_plugin",
            "gemm_plugin auto is for float16 and bfloat16",
        ),
        ({**PLAN, "sampler": "torch"}, "sampler", "only the PyTorch runtime has this sampler"),
        ({"plan": {"workers": 2}}, "plan", "options are for engine: plan"),
        ({**PLAN, "scheduler": "max_utilization"}, "scheduler", "issue 18891"),
        ({**PLAN, "iteration_stats": True}, "iteration_stats", "for the PyTorch runtime"),
        (
            {**PLAN, "lora": {"adapters": dict.fromkeys("abcde", "x")}},
            "lora.adapters",
            "an engine plan holds 4 adapters",
        ),
        (
            {**PLAN, "lora": {"adapters": {"a": "x"}, "max_loras": 2}},
            "lora.max_loras",
            "an engine plan holds 4: leave it out",
        ),
    ],
)
def test_it_is_refused_with_the_reason(given, where, said):
    (refusal,) = refused(given)
    assert ".".join(refusal.where) == where
    assert said in refusal.reason


@pytest.mark.parametrize(
    "given",
    [
        {**PLAN, "quantization": "int8_sq", "calibration": {"samples": 64}},
        {
            **PLAN,
            "quantization": "int8_sq",
            "kv_cache": {"dtype": "int8", "reuse": False},
            "chunked_prefill": False,
        },
        {**PLAN, "quantization": "fp8", "kv_cache": {"dtype": "fp8"}},
        {**PLAN, "quantization": "fp8", "plan": {"gemm_plugin": "off"}},
        {**PLAN, "speculative": {"method": "lookahead"}},
    ],
)
def test_what_goes_together_is_not_refused(given):
    assert not refused(given)


def test_lookaheads_draft_length_is_upstreams():
    given = {"speculative": {"method": "lookahead", "window": 7, "ngram": 7, "verification": 7}}
    found = GpuOptions.model_validate({**PLAN, **given})
    assert found.speculative.max_draft_len == 83
