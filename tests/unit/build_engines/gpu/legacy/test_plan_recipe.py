"""recipe: the commands of engine plans, flag by flag, what a change redoes, and the notice."""

from __future__ import annotations

import pytest

from build_engines.errors import BuildError
from build_engines.gpu.device import Device
from build_engines.gpu.legacy.refusals import NOTICE
from tests.unit.build_engines.gpu.recipes import H100, INT8_CACHE, keys, make, shown

CALIBRATED = "--calib_dataset <calibration> --calib_size 512"
PLAN = (
    "trtllm-build --checkpoint_dir <checkpoint> --output_dir <plan> "
    "--output_timing_cache <plan>/model.cache --max_batch_size 64 --max_num_tokens 8192 "
    "--max_seq_len {length} --kv_cache_type paged --use_paged_context_fmha enable "
    "--multiple_profiles enable --workers 1"
)


@pytest.mark.parametrize(
    ("name", "gpu", "family", "flags", "length"),
    [
        ("llama-3.1-8b", {}, "llama", "--tp_size 1 --pp_size 1", 131_072),
        (
            "llama-3.1-70b",
            {"tensor_parallel": 4, "pipeline_parallel": 2, "dtype": "bfloat16"},
            "llama",
            "--tp_size 4 --pp_size 2",
            131_072,
        ),
        ("mistral-7b-v0.3", {"max_seq_len": 8192}, "llama", "--tp_size 1 --pp_size 1", 8192),
        ("qwen2.5-7b", {"tensor_parallel": 2}, "qwen", "--tp_size 2 --pp_size 1", 32_768),
        (
            "qwen3-30b-a3b",
            {"tensor_parallel": 4, "expert_parallel": 4},
            "qwen",
            "--tp_size 4 --pp_size 1 --moe_tp_size 1 --moe_ep_size 4",
            40_960,
        ),
        (
            "mixtral-8x7b",
            {"tensor_parallel": 4, "expert_parallel": 2},
            "llama",
            "--tp_size 4 --pp_size 1 --moe_tp_size 2 --moe_ep_size 2",
            32_768,
        ),
        ("phi-3.5-mini", {"tensor_parallel": 2}, "phi", "--tp_size 2 --pp_size 1", 131_072),
    ],
)
def test_an_engine_plan_is_converted_and_built(tmp_path, name, gpu, family, flags, length):
    found = make(tmp_path, name, {"engine": "plan", **gpu})
    assert shown(found) == {
        "checkpoint": f"python3 /examples/models/core/{family}/convert_checkpoint.py "
        f"--model_dir <weights> --output_dir <checkpoint> --dtype {gpu.get('dtype', 'auto')} "
        f"{flags} --workers 1",
        "plan": f"{PLAN.format(length=length)} --gemm_plugin auto",
    }
    assert found.engine.name == "plan"


@pytest.mark.parametrize(
    ("gpu", "quantize", "plan"),
    [
        (
            {"quantization": "fp8", "kv_cache": {"dtype": "fp8"}},
            f"--qformat fp8 {CALIBRATED} --kv_cache_dtype fp8",
            "",
        ),
        ({"quantization": "int8_sq"}, f"--qformat int8_sq {CALIBRATED}", " --gemm_plugin auto"),
        (
            {"quantization": "int4_awq"},
            "--qformat int4_awq --calib_dataset <calibration> --calib_size 32 --awq_block_size 128",
            " --gemm_plugin auto",
        ),
        (
            INT8_CACHE,
            f"--qformat full_prec {CALIBRATED} --kv_cache_dtype int8",
            " --gemm_plugin auto",
        ),
        (
            {"quantization": "int8_wo", "plan": {"gemm_plugin": "off", "reduce_fusion": True}},
            "--qformat int8_wo",
            " --reduce_fusion enable",
        ),
    ],
)
def test_a_quantized_engine_plan_comes_through_quantize(tmp_path, gpu, quantize, plan):
    found = shown(make(tmp_path, "llama-3.1-8b", {"engine": "plan", "tensor_parallel": 2, **gpu}))
    tokens = str(gpu.get("max_num_tokens", 8192))
    assert found == {
        "checkpoint": "python3 /examples/quantization/quantize.py --model_dir <weights> "
        f"--output_dir <checkpoint> --dtype auto {quantize} --tp_size 2 "
        "--pp_size 1",
        "plan": PLAN.format(length=131_072).replace("8192", tokens) + plan,
    }


def test_lookahead_and_adapters_are_built_in(tmp_path):
    (tmp_path / "sql").mkdir()
    speculative = {"method": "lookahead", "window": 7, "ngram": 7, "verification": 7}
    lora = {"adapters": {"sql": str(tmp_path / "sql")}, "max_rank": 16}
    found = make(
        tmp_path, "llama-3.1-8b", {"engine": "plan", "speculative": speculative, "lora": lora}
    )
    assert shown(found)["plan"].endswith(
        " --speculative_decoding_mode lookahead_decoding --max_draft_len 83 "
        "--lora_plugin auto --max_lora_rank 16 --lora_dir <adapter-sql>"
    )


def test_the_cpp_backend_gets_its_own_guide_table(tmp_path):
    found = make(tmp_path, "llama-3.1-8b", {}, runtime="tensorrtllm")
    program = "/examples/generate_xgrammar_tokenizer_info.py"
    wanted = f"python3 {program} --model_dir <weights> --output_dir <guide_info>"
    assert shown(found)["guide_info"] == wanted
    without = make(tmp_path, "llama-3.1-8b", {"guided_decoding": "off"}, runtime="tensorrtllm")
    assert "guide_info" not in shown(without)


@pytest.mark.parametrize(
    ("changed", "redone"),
    [
        ({"max_batch_size": 32}, {"plan"}),
        ({"tensor_parallel": 2}, {"checkpoint", "plan"}),
        ({"kv_cache": {"fraction": 0.5}}, set()),
        ({"scheduler": "max_utilization", "guided_decoding": "off"}, set()),
        ({"devices": [3], "hang_seconds": 0}, set()),
        ({"max_seq_len": 4096}, {"plan", "tables"}),
    ],
)
def test_a_changed_option_changes_the_keys_of_what_depends_on_it(tmp_path, changed, redone):
    before = keys(make(tmp_path, "llama-3.1-8b", {"engine": "plan"}))
    after = keys(make(tmp_path, "llama-3.1-8b", {"engine": "plan", **changed}))
    assert {name for name in after if after[name] != before[name]} == redone


def test_a_plan_belongs_to_a_version_and_a_kind_of_gpu(tmp_path):
    a100 = Device(memory_gb=80, architecture="ampere")
    found = [
        keys(make(tmp_path, "llama-3.1-8b", {"engine": "plan"}, version=version, device=device))
        for version, device in (("1.2.1", H100), ("1.2.0", H100), ("1.2.1", a100))
    ]
    assert len({key["plan"] for key in found}) == 3
    assert len({key["checkpoint"] for key in found}) == 2


@pytest.mark.parametrize(
    ("name", "gpu", "version", "said"),
    [
        ("gpt-oss-20b", {}, "1.2.1", "not gpt_oss: use engine: pytorch"),
        (
            "phi-3.5-mini",
            {"pipeline_parallel": 2},
            "1.2.1",
            "converter for phi3 has no pipeline_parallel",
        ),
        ("llama-3.1-8b", {}, "1.3.0rc21", "1.3.0rc21 no longer builds engine plans: use runtime"),
        ("llama-3.1-8b", {}, "1.3.0", "no longer builds engine plans: use runtime"),
    ],
)
def test_a_plan_that_cannot_be_built_is_refused(tmp_path, name, gpu, version, said):
    with pytest.raises(BuildError) as error:
        make(tmp_path, name, {"engine": "plan", **gpu}, version=version)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("runtime", "gpu", "is_legacy"),
    [
        ("tensorrt_llm", {"engine": "plan"}, True),
        ("tensorrtllm", {}, True),
        ("tensorrt_llm", {}, False),
    ],
)
def test_build_says_that_plans_and_the_cpp_backend_are_legacy(tmp_path, runtime, gpu, is_legacy):
    found = make(tmp_path, "llama-3.1-8b", gpu, runtime=runtime, version="1.3.0rc20")
    assert (found.notes[0] == NOTICE) == is_legacy
    assert "1.3.0rc20 is the last version" in NOTICE
