"""The arguments that `build` writes start the LLM API's `LLM`, as its signatures have it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from triton_openai.build_engines.gpu import llm_args
from triton_openai.build_engines.gpu.options import GpuOptions
from trtllm.library import Library

FOLDERS = {"weights": Path("/w"), "draft": Path("/d")}


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
    options = GpuOptions.model_validate(given)
    library = Library.load("tensorrt" if options.engine == "plan" else "pytorch")
    version, modules = Version(library.version), {"attn_qkv": "qkv_proj"}
    arguments = llm_args.of(options, FOLDERS, version=version, lora_modules=modules)
    llm = library.start(tmp_path, json.dumps(arguments))
    llm.shutdown()
