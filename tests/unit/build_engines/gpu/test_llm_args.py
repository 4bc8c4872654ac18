"""llm_args: upstream's names for what models.yaml says."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from build_engines import triton_models
from build_engines.gpu import llm_args
from build_engines.gpu.options import GpuOptions

FOLDERS = {
    "weights": Path("/w"),
    "draft": Path("/d"),
    "guide_info": Path("/g"),
}
LORA = {"adapters": {"sql": "l"}}
MODULES = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj"}


def arguments(version: str = "1.2.1", **given: object) -> dict:
    options = GpuOptions.model_validate(given)
    return llm_args.of(options, FOLDERS, version=Version(version), lora_modules=MODULES)


def test_a_checkpoint_is_told_everything():
    found = arguments(
        tensor_parallel=8,
        pipeline_parallel=2,
        expert_parallel=4,
        dtype="bfloat16",
        max_seq_len=4096,
        max_batch_size=16,
        max_num_tokens=2048,
        kv_cache={
            "fraction": 0.8,
            "reuse": True,
            "host_offload_gb": 16,
            "dtype": "fp8",
            "event_buffer_max_size": 100_000,
        },
        scheduler="max_utilization",
        chunked_prefill=False,
    )
    assert found == {
        "tokenizer": "/w",
        "dtype": "bfloat16",
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": 2,
        "moe_expert_parallel_size": 4,
        "gpus_per_node": 8,
        "max_batch_size": 16,
        "max_num_tokens": 2048,
        "max_seq_len": 4096,
        "kv_cache_config": {
            "free_gpu_memory_fraction": 0.8,
            "enable_block_reuse": True,
            "host_cache_size": 16_000_000_000,
            "dtype": "fp8",
            "event_buffer_max_size": 100_000,
        },
        "enable_chunked_prefill": False,
        "enable_iter_perf_stats": True,
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": 16},
        "sampler_type": "TRTLLMSampler",
        "scheduler_config": {"capacity_scheduler_policy": "MAX_UTILIZATION"},
        "guided_decoding_backend": "xgrammar",
    }


@pytest.mark.parametrize(
    ("version", "given", "policy"),
    [
        ("1.2.1", {}, None),
        ("1.3.0rc2", {}, None),
        ("1.3.0", {}, "priority"),
        ("1.4.0rc1", {}, "priority"),
        ("1.3.0", {"engine": "plan"}, None),
    ],
)
def test_the_engines_queue_follows_priorities_where_requests_can_have_them(version, given, policy):
    found = arguments(version, **given)["scheduler_config"]
    assert found.get("waiting_queue_policy") == policy


def test_a_plan_is_not_told_what_it_has_inside():
    found = arguments(engine="plan", max_seq_len=4096)
    told = {"dtype", "max_seq_len", "enable_iter_perf_stats", "cuda_graph_config"}
    assert not told & set(found)
    assert "dtype" not in found["kv_cache_config"]


def test_a_plan_keeps_its_own_limits():
    """Upstream's default of max_num_tokens, 8192, would replace the plan's."""
    options = GpuOptions.model_validate({"engine": "plan"})
    built = {"max_batch_size": 16, "max_num_tokens": 2048, "max_seq_len": 4096}
    found = llm_args.of(options, FOLDERS, version=Version("1.2.1"), lora_modules={}, plan=built)
    assert (found["max_batch_size"], found["max_num_tokens"]) == (16, 2048)


@pytest.mark.parametrize(
    ("speculative", "config"),
    [
        (
            {"method": "eagle3", "draft": "d", "max_draft_len": 5},
            {"decoding_type": "Eagle", "max_draft_len": 5, "speculative_model_dir": "/d"},
        ),
        (
            {"method": "draft_target", "draft": "d"},
            {"decoding_type": "DraftTarget", "max_draft_len": 4, "speculative_model_dir": "/d"},
        ),
        ({"method": "mtp"}, {"decoding_type": "MTP", "num_nextn_predict_layers": 1}),
        (
            {"method": "ngram"},
            {"decoding_type": "NGram", "max_draft_len": 4, "max_matching_ngram_size": 2},
        ),
        (
            {"method": "lookahead"},
            {
                "decoding_type": "Lookahead",
                "max_window_size": 4,
                "max_ngram_size": 3,
                "max_verification_set_size": 4,
            },
        ),
    ],
)
def test_speculation_is_what_upstreams_from_dict_takes(speculative, config):
    assert arguments(speculative=speculative)["speculative_config"] == config


@pytest.mark.parametrize(
    ("version", "sampler", "told"),
    [
        ("1.2.1", "torch", {"sampler_type": "TorchSampler"}),
        ("1.1.0", "trtllm", {"sampler_type": "TRTLLMSampler"}),
        ("1.0.0", "torch", {"use_torch_sampler": True}),
        ("1.0.0", "trtllm", {"use_torch_sampler": False}),
    ],
)
def test_the_sampler_is_named_as_the_version_has_it(version, sampler, told):
    found = arguments(version, sampler=sampler)
    assert {name: value for name, value in found.items() if "sampler" in name} == told


def test_speculation_has_its_own_sampler():
    assert not [name for name in arguments(speculative={"method": "mtp"}) if "sampler" in name]


def test_without_guides_there_is_no_backend_for_them():
    assert "guided_decoding_backend" not in arguments(guided_decoding="off")


@pytest.mark.parametrize(("adapters", "on_gpu"), [("ab", 2), ("abcdef", 5)])
def test_all_adapters_are_in_memory_and_some_at_a_time_on_the_gpu(adapters, on_gpu):
    found = arguments(lora={"adapters": dict.fromkeys(adapters, "l"), "max_loras": 5})
    assert found["lora_config"] == {
        "lora_target_modules": ["attn_q", "attn_k", "attn_v"],
        "trtllm_modules_to_hf_modules": MODULES,
        "max_lora_rank": 64,
        "max_loras": on_gpu,
        "max_cpu_loras": len(adapters),
    }


@pytest.mark.parametrize(
    ("version", "without"), [("1.0.0", True), ("1.2.1", True), ("1.3.0", False)]
)
def test_adapters_go_without_cuda_graphs_where_those_change_the_answer(version, without):
    padded = {"enable_padding": True, "max_batch_size": 64}
    assert arguments(version, lora=LORA)["cuda_graph_config"] == (None if without else padded)
    assert arguments(version)["cuda_graph_config"] == padded


def test_a_plan_has_its_adapters_shape_inside_it():
    assert not [name for name in arguments(engine="plan", lora=LORA) if "lora" in name]


def backend(**given: object) -> dict[str, str]:
    options = GpuOptions.model_validate({"engine": "plan", **given})
    return llm_args.backend_parameters(options, Path("/e"), FOLDERS)


def test_the_cpp_backend_is_told_by_its_own_keys():
    kv_cache = {"fraction": 0.5, "reuse": False}
    assert backend(kv_cache=kv_cache, chunked_prefill=False) == {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": "/e",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "kv_cache_free_gpu_mem_fraction": "0.5",
        "kv_cache_host_memory_bytes": "0",
        "enable_kv_cache_reuse": "false",
        "enable_chunked_context": "false",
        "exclude_input_in_output": "true",
        "max_beam_width": "1",
        "gpu_device_ids": "",
        "decoding_mode": "top_k_top_p",
        "tokenizer_dir": "/w",
        "guided_decoding_backend": "xgrammar",
        "xgrammar_tokenizer_info_path": "/g/xgrammar_tokenizer_info.json",
    }


def test_every_key_stands_in_the_backends_template():
    template = triton_models.config_of("engine", "tensorrt_llm").parameters
    speculative = {"method": "lookahead"}
    assert set(backend()) | set(backend(speculative=speculative)) <= set(template)


def test_the_keys_that_it_cannot_do_without_are_always_there():
    """Those that its source reads without a default."""
    wanted = {
        "gpt_model_type",
        "tokenizer_dir",
        "xgrammar_tokenizer_info_path",
        "guided_decoding_backend",
    }
    assert wanted <= set(backend()) & set(backend(guided_decoding="off"))


def test_its_log_probs_are_over_the_whole_vocabulary():
    """Normalized, they are over the top_k that are left: 0 for all that is greedy."""
    template = triton_models.config_of("engine", "tensorrt_llm").parameters
    assert template["normalize_log_probs"].string_value == "false"


def test_lookahead_is_a_decoding_mode_of_it():
    speculative = {"method": "lookahead", "window": 7, "ngram": 5, "verification": 3}
    found = backend(speculative=speculative)
    assert (found["decoding_mode"], found["lookahead_window_size"]) == ("lookahead", "7")
    assert (found["lookahead_ngram_size"], found["lookahead_verification_set_size"]) == ("5", "3")
