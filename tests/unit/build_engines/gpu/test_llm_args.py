"""llm_args: upstream's names for what models.yaml says."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from build_engines.gpu import llm_args
from build_engines.gpu.options import GpuOptions

FOLDERS = {
    "weights": Path("/w"),
    "draft": Path("/d"),
}
EAGLE3 = {"method": "eagle3", "draft": "d", "max_draft_len": 5}
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
        "stream_interval": 1,
        "enable_iter_perf_stats": False,
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": 16},
        "sampler_type": "TRTLLMSampler",
        "scheduler_config": {"capacity_scheduler_policy": "MAX_UTILIZATION"},
        "guided_decoding_backend": "xgrammar",
    }


@pytest.mark.parametrize(
    ("given", "interval"),
    [
        ({"max_batch_size": 8}, 1),
        ({"max_batch_size": 127}, 1),
        ({"max_batch_size": 128}, 2),
        ({"max_batch_size": 256}, 4),
        ({"max_batch_size": 512}, 8),
        ({"max_batch_size": 2048}, 8),
        ({"max_batch_size": 2048, "llm_args": {"stream_interval": 1}}, 1),
    ],
)
def test_large_batches_join_steps_before_the_engines_process_sees_them(given, interval):
    assert arguments(**given)["stream_interval"] == interval


def test_statistics_are_collected_if_models_yaml_wants_them():
    assert arguments(iteration_stats=True)["enable_iter_perf_stats"] is True


@pytest.mark.parametrize(
    ("version", "given", "policy"),
    [
        ("1.2.1", {}, None),
        ("1.3.0rc24", {}, None),
        ("1.3.0rc25", {}, "priority"),
        ("1.3.0", {}, "priority"),
        ("1.4.0rc1", {}, "priority"),
        ("1.3.0", {"engine": "plan"}, None),
    ],
)
def test_the_engines_queue_follows_priorities_where_requests_can_have_them(version, given, policy):
    found = arguments(version, **given)["scheduler_config"]
    assert found.get("waiting_queue_policy") == policy


def test_attention_dp_is_told_only_where_it_is_on():
    assert arguments(tensor_parallel=8, attention_dp=True)["enable_attention_dp"] is True
    assert "enable_attention_dp" not in arguments(tensor_parallel=8)


def test_a_plan_is_not_told_what_it_has_inside():
    found = arguments(engine="plan", max_seq_len=4096)
    told = {"dtype", "max_seq_len", "stream_interval", "enable_iter_perf_stats"}
    told |= {"cuda_graph_config"}
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
            EAGLE3,
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
    ("speculative", "config"),
    [
        (EAGLE3, {"decoding_type": "Eagle3", "max_draft_len": 5, "speculative_model": "/d"}),
        (
            {"method": "draft_target", "draft": "d"},
            {"decoding_type": "Draft_Target", "max_draft_len": 4, "speculative_model": "/d"},
        ),
        ({"method": "mtp", "layers": 2}, {"decoding_type": "MTP", "max_draft_len": 2}),
        (
            {"method": "ngram"},
            {"decoding_type": "NGram", "max_draft_len": 4, "max_matching_ngram_size": 2},
        ),
    ],
)
def test_later_speculation_is_what_the_llm_itself_takes(speculative, config):
    assert arguments("1.3.0rc25", speculative=speculative)["speculative_config"] == config


@pytest.mark.parametrize(
    ("version", "sampler", "told"),
    [
        ("1.2.1", "torch", {"sampler_type": "TorchSampler"}),
        ("1.2.1", None, {"sampler_type": "TRTLLMSampler"}),
        ("1.1.0", "trtllm", {"sampler_type": "TRTLLMSampler"}),
        ("1.3.0rc24", None, {"sampler_type": "TRTLLMSampler"}),
        ("1.3.0rc25", None, {}),
        ("1.3.0rc25", "torch", {}),
        ("1.0.0", "torch", {"use_torch_sampler": True}),
        ("1.0.0", "trtllm", {"use_torch_sampler": False}),
    ],
)
def test_the_sampler_is_named_as_the_version_has_it(version, sampler, told):
    found = arguments(version, sampler=sampler)
    assert {name: value for name, value in found.items() if "sampler" in name} == told


@pytest.mark.parametrize("version", ["1.0.0", "1.2.1", "1.3.0rc25"])
def test_speculation_has_its_own_sampler(version):
    found = arguments(version, speculative={"method": "mtp"})
    assert not [name for name in found if "sampler" in name]


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
