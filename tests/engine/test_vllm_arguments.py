"""`vllm:` of models.yaml: what reaches vLLM's AsyncEngineArgs fits the recorded versions; what
names code, files or addresses, or contradicts us, is refused; and a model that has no room.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packaging.version import Version

from build_engines import models_file
from build_engines.engine_limits import vllm_missing
from build_engines.gpu.architecture import Architecture
from build_engines.gpu.options import Lora
from build_engines.models_file import ModelsFileError, VllmEntry
from build_engines.vllm import arguments, build
from build_engines.vllm.options import VllmOptions
from build_engines.weights import LocalFolder

VERSIONS = list(arguments.RECORDS)
NEWEST = VERSIONS[0]
ADAPTERS = {"poet": LocalFolder(Path("/adapters/poet"))}
EVERYTHING = VllmOptions(
    dtype="bfloat16", quantization="fp8", tensor_parallel=2, kv_cache_gb=1.5,
    lora=Lora(adapters=ADAPTERS, max_rank=16),
    engine_args={
        "enforce_eager": True, "kv_cache_dtype": "fp8", "max_num_batched_tokens": 4096,
        "compilation_config": {"mode": 3}, "enable_expert_parallel": True,
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
    },
)  # fmt: skip
# Fields with texts of their own choosing that a models.yaml may have: words, no paths.
WORDS = {
    "attention_config", "aux_output_config", "compilation_config", "cpu_offload_params",
    "custom_histogram_buckets", "ec_manager_config", "engram_config", "eplb_config",
    "ir_op_priority", "kernel_config", "kv_cache_dtype_skip_layers", "lora_dtype",
    "lora_target_modules", "mamba_config", "mm_encoder_attn_backend", "mm_encoder_attn_dtype",
    "mm_processor_kwargs", "numa_bind_cpus", "offload_backend", "offload_params",
    "override_attention_dtype",
    "pt_load_map_location", "quantization_config", "sleep_preserve_parameter_names",
    "spec_method", "speculative_config", "video_pruning_method",
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", [VllmOptions(), EVERYTHING], ids=["defaults", "everything"])
def test_what_we_pass_fits_each_version(version, options):
    assert not list(arguments.problems(options, version))


@pytest.mark.parametrize(
    ("given", "interval"),
    [
        ({"max_rows": 1}, 1),
        ({"max_rows": 64}, 1),
        ({"max_rows": 128}, 2),
        ({}, 4),
        ({"max_rows": 2048}, 8),
        ({"max_rows": 2048, "engine_args": {"stream_interval": 1}}, 1),
    ],
)
def test_large_batches_send_the_tokens_of_several_steps_together(given, interval):
    made = arguments.of(VllmOptions(**given), context_length=1)
    assert made["stream_interval"] == interval


@pytest.mark.parametrize("version", VERSIONS)
def test_each_field_with_free_text_is_known_here(version):
    """A new version's new field fails this test until somebody has looked at it."""
    record = arguments.record_of(version)
    for name, row in record.fields(arguments.CLASS).items():
        kind = record.aliases.get(row["type"], row["type"])
        if re.search(r"\bstr\b|\bdict\b", kind) and not list(arguments.refused({name: 1})):
            assert name in WORDS


def test_options_and_refusals_name_fields():
    fields = {name for v in VERSIONS for name in arguments.record_of(v).fields(arguments.CLASS)}
    named = arguments.OPTIONS.keys() | arguments.REFUSED.keys()
    assert {name.split(".")[0] for name in named} <= fields


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"max_num_batched_token": 5}, "did you mean max_num_batched_tokens?"),
        ({"block_size": "16"}, "engine_args.block_size is '16', must be int | None"),
        ({"block_size": True}, "engine_args.block_size is True"),
        ({"kv_cache_dtype": "fp3"}, "engine_args.kv_cache_dtype is 'fp3'"),
    ],
)
def test_a_wrong_name_or_type_is_found_before_vllm_starts(given, problem):
    (found,) = arguments.problems(VllmOptions(engine_args=given), NEWEST)
    assert problem in found


def test_a_version_older_than_the_records_is_refused():
    (found,) = arguments.problems(VllmOptions(), Version("0.26.9"))
    assert found == "vLLM 0.26.9 is too old: use 0.27.0 or later"


@pytest.mark.parametrize(
    ("given", "place", "reason"),
    [
        ({"trust_remote_code": True}, "trust_remote_code", "runs Python code"),
        ({"max_num_seqs": 3}, "max_num_seqs", "is set by vllm.max_rows: use that"),
        (
            {"worker_extension_cls": "a"},
            "worker_extension_cls",
            "names a file, an address, or code",
        ),
        (
            {"compilation_config": {"cache_dir": "x"}},
            "compilation_config.cache_dir",
            "names a file",
        ),
        ({"speculative_config": {"model": "x"}}, "speculative_config.model", "names another model"),
        ({"quantization_config": {"a": "/etc"}}, "quantization_config.a", "must be one word"),
        ({"data_parallel_size": 2}, "data_parallel_size", "one process"),
        ({"_api_process_count": 2}, "_api_process_count", "one process"),
        ({"kv_events_config": {}}, "kv_events_config", "prompts can be read"),
    ],
)
def test_what_may_not_be_given_is_refused_with_its_place(tmp_path, given, place, reason):
    path = tmp_path / "models.yaml"
    entry = {"runtime": "vllm", "weights": str(tmp_path), "vllm": {"engine_args": given}}
    path.write_text(json.dumps({"models": {"m": entry}}))
    with pytest.raises(ModelsFileError, match=re.escape(f"vllm.engine_args.{place}")) as error:
        models_file.load(path)
    assert reason in str(error.value)


def test_an_environment_must_be_a_plain_path_as_triton_runs_a_shell(tmp_path):
    path = tmp_path / "models.yaml"
    entry = {"runtime": "vllm", "weights": str(tmp_path), "vllm": {"environment": "/a b; id"}}
    path.write_text(json.dumps({"models": {"m": entry}}))
    with pytest.raises(ModelsFileError, match="letters, digits"):
        models_file.load(path)


def test_what_vllm_lacks_is_not_declared():
    least = vllm_missing(has_adapters=True, is_speculative=False, reads_images=True)
    assert least == {"resume_from", "prompt_blocks"}
    more = vllm_missing(has_adapters=False, is_speculative=True, reads_images=False)
    assert {"lora_name", "min_p", "logit_bias", "image"} <= more


def test_a_model_with_a_vision_config_reads_images(tmp_path):
    config = tmp_path / build.ENGINE / "config.json"
    config.parent.mkdir()
    for given, reads in ((LLAMA, False), ({"text_config": LLAMA, "vision_config": {}}, True)):
        config.write_text(json.dumps(given))
        assert build.reads_images(tmp_path) is reads


LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 131072,
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "context", "problem"),
    [
        ({"memory_gb": 80}, 8192, None),
        ({"memory_gb": 16}, 8192, "a GPU of 16 GB has 16.1 GB of weights"),
        ({"memory_gb": 24}, 131_072, "one request of 131,072 tokens takes 17.2"),
        ({"memory_gb": 24, "tensor_parallel": 2}, 8192, None),
        ({"memory_gb": 80, "tensor_parallel": 3}, 8192, "tensor_parallel 3 does not divide"),
        ({"kv_cache_gb": 100}, 8192, "weights and kv_cache_gb take 116.1 GB"),
        ({"kv_cache_gb": 0.1}, 8192, "and kv_cache_gb is 0.1: raise it"),
        ({"kv_cache_gb": 2}, 8192, None),
    ],
)
def test_a_model_without_room_is_refused_with_the_numbers(tmp_path, options, context, problem):
    entry = VllmEntry(runtime="vllm", weights=str(tmp_path), vllm=options)
    shape, gpu_gb = Architecture.read(LLAMA), entry.vllm.memory_gb
    found = "; ".join(build.problems(entry, shape, context, gpu_gb=gpu_gb, machine_gb=64))
    assert found == "" if problem is None else problem in found
