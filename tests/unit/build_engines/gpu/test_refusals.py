"""refusals: options that do not go together, and where in the section it is said."""

from __future__ import annotations

import pytest

from triton_openai.build_engines.gpu.options import GpuOptions
from triton_openai.build_engines.gpu.refusals import refusals

PLAN = {"engine": "plan"}


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        ({"quantization": "int8_sq"}, "quantization", "reads fp8, nvfp4, int4_awq, w4a8_awq"),
        ({"quantization": "int4_wo"}, "quantization", "or engine: plan"),
        ({"quantization": "int8_wo"}, "quantization", "PyTorch runtime"),
        ({"calibration": {"samples": 8}}, "calibration", "these options measure no texts"),
        (
            {**PLAN, "quantization": "int8_wo", "calibration": {"samples": 8}},
            "calibration",
            "these options measure no texts",
        ),
        (
            {"kv_cache": {"dtype": "fp8"}, "calibration": {"samples": 8}},
            "calibration",
            "these options measure no texts",
        ),
        (
            {**PLAN, "quantization": "int4_awq", "calibration": {"samples": 64}},
            "calibration.samples",
            "measures 32 texts for AWQ at most",
        ),
        (
            {"quantization": "nvfp4", "architecture": "hopper"},
            "quantization",
            "nvfp4 needs Blackwell or later, this GPU is Hopper",
        ),
        (
            {"quantization": "fp8", "architecture": "ampere"},
            "quantization",
            "fp8 needs Ada or later, this GPU is Ampere",
        ),
        (
            {"kv_cache": {"dtype": "fp8"}, "architecture": "ampere"},
            "kv_cache.dtype",
            "fp8 needs Ada",
        ),
        ({"kv_cache": {"dtype": "int8"}}, "kv_cache.dtype", "no int8 KV cache"),
        ({**PLAN, "kv_cache": {"dtype": "int8"}}, "kv_cache.dtype", "set both to false"),
        (
            {**PLAN, "kv_cache": {"dtype": "fp8", "reuse": False}},
            "kv_cache.dtype",
            "no paged attention over prompts",
        ),
        (
            {"kv_cache": {"host_offload_gb": 8, "reuse": False}},
            "kv_cache.host_offload_gb",
            "reuse is off",
        ),
        ({"tensor_parallel": 4, "expert_parallel": 3}, "expert_parallel", "must divide it"),
        (
            {**PLAN, "quantization": "fp8", "tensor_parallel": 2, "expert_parallel": 2},
            "expert_parallel",
            "quantize.py shards experts by tensor only",
        ),
        ({"max_batch_size": 9000}, "max_num_tokens", "max_batch_size at least"),
        ({**PLAN, "guided_decoding": "llguidance"}, "guided_decoding", "take xgrammar"),
        ({**PLAN, "speculative": {"method": "ngram"}}, "speculative.method", "lookahead only"),
        ({"speculative": {"method": "lookahead"}}, "speculative.method", "take ngram"),
        (
            {**PLAN, "quantization": "fp8", "plan": {"gemm_plugin": "auto"}},
            "plan.gemm_plugin",
            "gemm_plugin auto is for float16 and bfloat16",
        ),
        ({**PLAN, "sampler": "torch"}, "sampler", "only the PyTorch runtime has that sampler"),
        (
            {"speculative": {"method": "ngram"}, "sampler": "torch"},
            "sampler",
            "speculative decoding chooses its own sampler",
        ),
        ({"plan": {"workers": 2}}, "plan", "options of engine: plan"),
        (
            {"speculative": {"method": "ngram"}, "lora": {"adapters": {"a": "x"}}},
            "lora",
            "no speculative decoding with adapters",
        ),
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
    (refusal,) = refusals(GpuOptions.model_validate(given))
    assert ".".join(refusal.where) == where
    assert said in refusal.reason


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"quantization": "nvfp4", "architecture": "blackwell"},
        {**PLAN, "quantization": "int8_sq", "calibration": {"samples": 64}},
        {"quantization": "int4_awq", "calibration": {"samples": 64}},
        {"quantization": "nvfp4"},  # the GPU is looked at when it is built
        {"quantization": "fp8", "architecture": "ada", "kv_cache": {"dtype": "fp8"}},
        {"tensor_parallel": 8, "expert_parallel": 4},
        {
            **PLAN,
            "quantization": "int8_sq",
            "kv_cache": {"dtype": "int8", "reuse": False},
            "chunked_prefill": False,
        },
        {**PLAN, "quantization": "fp8", "kv_cache": {"dtype": "fp8"}},
        {**PLAN, "quantization": "fp8", "plan": {"gemm_plugin": "off"}},
        {**PLAN, "speculative": {"method": "lookahead"}},
        {"guided_decoding": "llguidance", "speculative": {"method": "mtp"}},
        {"architecture": "ampere", "quantization": "int4_awq"},
    ],
)
def test_what_goes_together_is_not_refused(given):
    assert not list(refusals(GpuOptions.model_validate(given)))


def test_lookaheads_draft_length_is_upstreams():
    given = {"speculative": {"method": "lookahead", "window": 7, "ngram": 7, "verification": 7}}
    found = GpuOptions.model_validate({**PLAN, **given})
    assert found.speculative.max_draft_len == 83
