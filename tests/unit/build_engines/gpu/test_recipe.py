"""recipe: the commands that published models give, flag by flag, and every reason why not."""

from __future__ import annotations

import pytest

from build_engines.errors import BuildError
from build_engines.gpu.device import Device
from build_engines.gpu.steps import PROGRAM
from tests.unit.build_engines.gpu.recipes import INT8_CACHE, make, shown

CALIBRATED = "--calib_dataset <calibration> --calib_size 512"
PLAN = (
    "trtllm-build --checkpoint_dir <checkpoint> --output_dir <plan> --max_batch_size 64 "
    "--max_num_tokens 8192 --max_seq_len {length} --kv_cache_type paged --use_paged_context_fmha "
    "enable --multiple_profiles enable --workers 1"
)


def test_a_checkpoint_that_is_served_as_it_is_is_only_checked(tmp_path):
    found = make(tmp_path, "gpt-oss-20b", {})
    assert [step.name for step in found.steps] == ["weights", "check", "tables"]
    assert found.engine.folder == tmp_path / "weights"


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "phi-3.5-mini"])
def test_a_checkpoint_for_the_pytorch_runtime_is_quantized_once_for_all_gpus(tmp_path, name):
    found = make(tmp_path, name, {"quantization": "fp8", "tensor_parallel": 2})
    commands = shown(found)
    assert list(commands) == ["quantization_environment", "quantized"]
    program, *flags = commands["quantized"].split(" --")
    assert program.endswith("bin/python -I " + str(PROGRAM))
    assert flags == [
        "weights <weights>",
        "calibration <calibration>/train.jsonl",
        "output <quantized>",
        "format fp8",
        "kv_cache auto",
        "dtype auto",
    ]
    assert found.engine.name == "quantized"


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
    ("name", "gpu", "said"),
    [
        ("gpt-oss-20b", {"engine": "plan"}, "not gpt_oss: use engine: pytorch"),
        ("mixtral-8x7b", {"quantization": "int4_awq"}, "has no int4_awq of experts as nvidia"),
        ("gpt-oss-20b", {"quantization": "fp8"}, "the weights are mxfp4 already: leave out"),
        (
            "phi-3.5-mini",
            {"engine": "plan", "pipeline_parallel": 2},
            "converter for phi3 has no pipeline_parallel",
        ),
        ("qwen2.5-7b", {"tensor_parallel": 8}, "does not divide the 28 attention heads"),
        ("llama-3.1-8b", {"expert_parallel": 2, "tensor_parallel": 2}, "has no experts"),
        ("llama-3.1-8b", {"quantization": "nvfp4"}, "nvfp4 needs Blackwell or later, this GPU is"),
        ("llama-3.1-70b", {}, "GB before any KV cache, and has 80"),
        ("mistral-7b-v0.3", {"max_seq_len": 65_536}, "the model supports 32768 positions only"),
        (
            "mistral-7b-v0.3",
            {"chunked_prefill": False},
            "a prompt of up to 32768 tokens must fit into one step of max_num_tokens 8192",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_fetched(tmp_path, name, gpu, said):
    with pytest.raises(BuildError) as error:
        make(tmp_path, name, gpu)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("version", "gpu", "said"),
    [
        ("1.3.0rc2", {"engine": "plan"}, "1.3.0rc2 no longer builds engine plans: use runtime"),
        ("0.21.0", {}, "0.21.0 has no stable PyTorch runtime: use engine: plan"),
        ("0.16.0", {"engine": "plan"}, "0.16.0 is too old: use 0.20.0 or later"),
        (
            "1.3.0",
            {"speculative": {"method": "ngram"}},
            "configures speculative decoding differently",
        ),
    ],
)
def test_the_version_decides_what_is_possible(tmp_path, version, gpu, said):
    with pytest.raises(BuildError) as error:
        make(tmp_path, "llama-3.1-8b", gpu, version=version)
    assert said in str(error.value)


def test_all_reasons_are_told_at_once(tmp_path):
    with pytest.raises(BuildError) as error:
        make(tmp_path, "qwen2.5-7b", {"engine": "plan", "tensor_parallel": 5}, version="1.3.0")
    assert str(error.value).count(";") >= 2


def test_what_nobody_knows_of_the_gpu_is_noted_not_guessed(tmp_path):
    found = make(tmp_path, "llama-3.1-70b", {}, device=Device())
    needed, default, memory, architecture = found.notes
    assert needed.startswith("memory of a GPU: 141.1 GB of weights")
    assert "sampling.max_tokens" in default
    assert memory.startswith("memory is not checked")
    assert architecture.startswith("the GPU's architecture is not checked")


def test_the_notes_tell_the_default_of_max_tokens_and_the_requests_that_fit(tmp_path):
    by_default = make(tmp_path, "llama-3.1-8b", {}).notes
    chosen = make(tmp_path, "llama-3.1-8b", {}, sampling={"max_tokens": 100}).notes
    assert "requests without max_tokens get 4,096 new tokens at most" in by_default[2]
    assert "requests of 5,120 tokens at once" in by_default[3]
    assert not [note for note in chosen if "requests without max_tokens" in note]
    assert "requests of 1,124 tokens at once" in chosen[2]
