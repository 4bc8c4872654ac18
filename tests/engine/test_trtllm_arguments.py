"""The arguments that `build` writes are upstream's: every key, nested ones too, and its type.

The stand-in's argument classes are made of upstream's recorded fields, and refuse all others.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.version import Version
from pydantic import ValidationError
from tensorrt_llm.llmapi.llm_args import DecodingBaseConfig, TorchLlmArgs, TrtLlmArgs

from build_engines.gpu import llm_args
from build_engines.gpu.options import GpuOptions
from tests.fixtures.gpu_examples import examples
from trtllm.library import Library

FOLDERS = {"weights": Path("/w"), "draft": Path("/d")}
EXAMPLES = examples()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"tensor_parallel": 8, "expert_parallel": 4, "pipeline_parallel": 2, "max_seq_len": 99},
        {"kv_cache": {"host_offload_gb": 8, "dtype": "fp8"}, "guided_decoding": "llguidance"},
        {"sampler": "torch", "scheduler": "max_utilization", "chunked_prefill": False},
        {"lora": {"adapters": {"sql": "l", "poet": "l"}}},
        {"speculative": {"method": "eagle3", "draft": "d"}},
        {"speculative": {"method": "draft_target", "draft": "d"}},
        {"speculative": {"method": "mtp", "layers": 2}},
        {"speculative": {"method": "ngram"}},
        {"engine": "plan"},
        {"engine": "plan", "speculative": {"method": "lookahead"}},
    ],
)
def test_they_start_it(tmp_path, given):
    start(tmp_path, GpuOptions.model_validate(given))


@pytest.mark.parametrize(("label", "entry"), EXAMPLES, ids=[label for label, _ in EXAMPLES])
def test_those_of_each_example_start_it(tmp_path, label, entry):
    start(tmp_path, GpuOptions.model_validate(entry.gpu.model_dump()))


def start(folder: Path, options: GpuOptions) -> None:
    library = Library.load("tensorrt" if options.engine == "plan" else "pytorch")
    version, modules = Version(library.version), {"attn_qkv": "qkv_proj"}
    arguments = llm_args.of(options, FOLDERS, version=version, lora_modules=modules)
    llm = library.start(folder, json.dumps(arguments))
    llm.shutdown()


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"max_batch": 8}, "max_batch"),
        ({"enable_iter_perf_stats": "loud"}, "enable_iter_perf_stats"),
        ({"kv_cache_config": {"free_gpu_memory_share": 0.9}}, "free_gpu_memory_share"),
        ({"kv_cache_config": {"host_cache_size": 1.5}}, "host_cache_size"),
        ({"cuda_graph_config": {"padding_enabled": True}}, "padding_enabled"),
        ({"scheduler_config": {"capacity_scheduler_policy": "FAIR"}}, "capacity_scheduler_policy"),
        ({"lora_config": {"max_rank": 8}}, "max_rank"),
        ({"guided_decoding_backend": "outlines"}, "guided_decoding_backend"),
        ({"build_config": None}, "build_config"),
        ({"speculative_config": {"decoding_type": "NGram"}}, "speculative_config"),
    ],
)
def test_what_upstream_does_not_have_is_refused(arguments, place):
    with pytest.raises(ValidationError, match=place):
        TorchLlmArgs(model="/m", **arguments)


def test_a_plan_is_refused_what_only_the_pytorch_runtime_has():
    with pytest.raises(ValidationError, match="cuda_graph_config"):
        TrtLlmArgs(model="/m", cuda_graph_config=None)


def test_a_speculation_of_another_type_or_key_is_refused():
    with pytest.raises(ValueError, match="Invalid decoding type: Draft_Target"):
        DecodingBaseConfig.from_dict({"decoding_type": "Draft_Target"})
    with pytest.raises(ValidationError, match="ngram_size"):
        DecodingBaseConfig.from_dict({"decoding_type": "NGram", "ngram_size": 2})


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"method": "draft_target", "draft": "d"}, "Draft_Target"),
        ({"method": "ngram"}, "NGram"),
    ],
)
def test_a_version_without_from_dict_gets_the_dictionary(tmp_path, monkeypatch, given, kind):
    """Upstream's later llm_args.py, whose `LLM` chooses the class by decoding_type."""
    monkeypatch.delattr(DecodingBaseConfig.__base__, "from_dict")
    got = []

    class Alive:
        def __init__(self, **arguments):
            got.append(arguments["speculative_config"])
            self._executor = SimpleNamespace(is_shutdown=lambda: False)

    options = GpuOptions.model_validate({"speculative": given})
    arguments = llm_args.of(options, FOLDERS, version=Version("1.2.1"), lora_modules={})
    replace(Library.load("pytorch"), llm=Alive).start(tmp_path, json.dumps(arguments))
    assert got == [{**arguments["speculative_config"], "decoding_type": kind}]
