"""recipe: the commands that published models give, flag by flag, what a change redoes, and every
reason why not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build_engines.errors import BuildError
from build_engines.gpu.device import Device
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.recipe import Recipe, sharding_problems
from build_engines.gpu.steps import PROGRAM
from tests.fixtures.published import PARAMETERS, config, shape
from tests.unit.build_engines.gpu.recipes import H100, INT8_CACHE, make, shown

CALIBRATED = "--calib_dataset <calibration> --calib_size 512"
PLAN = (
    "trtllm-build --checkpoint_dir <checkpoint> --output_dir <plan> "
    "--output_timing_cache <plan>/model.cache --max_batch_size 64 --max_num_tokens 8192 "
    "--max_seq_len {length} --kv_cache_type paged --use_paged_context_fmha enable "
    "--multiple_profiles enable --workers 1"
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


def keys(found: Recipe) -> dict[str, str]:
    return {step.name: step.key for step in found.steps}


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


def test_changed_weights_change_every_key(tmp_path):
    before = keys(make(tmp_path, "llama-3.1-8b", {"engine": "plan"}))
    (tmp_path / "weights" / "config.json").write_text(json.dumps(config("llama-3.1-8b")))
    after = keys(make(tmp_path, "llama-3.1-8b", {"engine": "plan"}))
    assert all(after[name] != before[name] for name in after)


def test_a_plan_belongs_to_a_version_and_a_kind_of_gpu(tmp_path):
    a100 = Device(memory_gb=80, architecture="ampere")
    found = [
        keys(make(tmp_path, "llama-3.1-8b", {"engine": "plan"}, version=version, device=device))
        for version, device in (("1.2.1", H100), ("1.2.0", H100), ("1.2.1", a100))
    ]
    assert len({key["plan"] for key in found}) == 3
    assert len({key["checkpoint"] for key in found}) == 2


def test_moving_artifacts_redoes_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = (
        keys(make(tmp_path / folder, "llama-3.1-8b", {"engine": "plan"})) for folder in "ab"
    )
    assert here == there


def quantized_key(folder: Path, **gpu: object) -> str:
    return keys(make(folder, "llama-3.1-8b", {"quantization": "fp8", **gpu}))["quantized"]


def test_a_quantized_checkpoint_depends_on_its_texts_and_options_only(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("one\n\ntwo\n")
    calibration = {"file": str(texts)}
    before = quantized_key(tmp_path, calibration=calibration)
    assert quantized_key(tmp_path, calibration=calibration, tensor_parallel=2) == before
    assert quantized_key(tmp_path, calibration=calibration, max_batch_size=8) == before
    changes = (
        {"quantization": "int4_awq"},
        {"kv_cache": {"dtype": "fp8"}},
        {"dtype": "bfloat16"},
        {"calibration": {"file": str(texts), "samples": 1}},
        {"calibration": {}},
    )
    found = {quantized_key(tmp_path, **{"calibration": calibration, **each}) for each in changes}
    texts.write_text("one\n\nthree\n")
    found |= {before, quantized_key(tmp_path, calibration=calibration)}
    assert len(found) == len(changes) + 2


def test_another_version_of_tensorrt_llm_needs_no_other_quantization(tmp_path):
    one, other = (
        keys(make(tmp_path, "llama-3.1-8b", {"quantization": "fp8"}, version=version))
        for version in ("1.2.0", "1.2.1")
    )
    assert one["quantized"] == other["quantized"]


WAYS = range(1, 65)


def found(name: str, **options: object) -> list[str]:
    return list(sharding_problems(shape(name), GpuOptions.model_validate(options)))


def fitting(name: str, field: str, **options: object) -> list[int]:
    return [ways for ways in WAYS if not found(name, **{**options, field: ways})]


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("llama-3.1-8b", [1, 2, 4, 8, 16, 32]),
        ("llama-3.1-70b", [1, 2, 4, 8, 16, 32, 64]),
        ("qwen2.5-7b", [1, 2, 4]),  # 28 heads, 4 of them for keys and values
        ("qwen3-30b-a3b", [1, 2, 4, 8, 16, 32]),
        ("mistral-7b-v0.3", [1, 2, 4, 8, 16, 32]),
        ("mixtral-8x7b", [1, 2, 4, 8, 16, 32]),
        ("phi-3.5-mini", [1, 2, 4, 8, 16, 32]),
        ("gpt-oss-20b", [1, 2, 4, 8, 16, 32, 64]),
    ],
)
def test_tensor_parallel(name, ways):
    assert fitting(name, "tensor_parallel") == ways


@pytest.mark.parametrize("name", PARAMETERS)
def test_pipeline_parallel_needs_a_layer_a_stage(name):
    """Stages may differ by a layer: upstream's Mapping.pp_layers splits unevenly."""
    assert fitting(name, "pipeline_parallel") == [w for w in WAYS if w <= shape(name).layers]


@pytest.mark.parametrize(
    ("name", "tensor_parallel", "ways"),
    [
        ("qwen3-30b-a3b", 8, [1, 2, 4, 8]),
        ("mixtral-8x7b", 32, [1, 2, 4, 8]),
        ("gpt-oss-20b", 32, [1, 2, 4, 8, 16, 32]),
    ],
)
def test_expert_parallel_divides_the_experts(name, tensor_parallel, ways):
    possible = [w for w in WAYS if tensor_parallel % w == 0]  # the rest is refused in models.yaml
    fitting = [
        w for w in possible if not found(name, tensor_parallel=tensor_parallel, expert_parallel=w)
    ]
    assert fitting == ways


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "qwen2.5-7b",
            {"tensor_parallel": 8},
            "8 does not divide the 28 attention heads: 1, 2,",
        ),
        (
            "qwen2.5-7b",
            {"tensor_parallel": 7},
            "tensor_parallel 7 does not fit the 4 key-value heads: one",
        ),
        (
            "llama-3.1-8b",
            {"tensor_parallel": 2, "expert_parallel": 2},
            "expert_parallel 2, but the model has no experts",
        ),
        (
            "mixtral-8x7b",
            {"tensor_parallel": 16, "expert_parallel": 16},
            "expert_parallel 16 does not divide the 8 experts",
        ),
        ("mixtral-8x7b", {"pipeline_parallel": 33}, "33 is more than the 32 layers"),
        (
            "gpt-oss-20b",
            {"tensor_parallel": 128},
            "tensor_parallel 128 does not divide the 64 attention heads",
        ),
        (
            "gpt-oss-20b",
            {"tensor_parallel": 128},
            "expert_parallel 128 does not divide the 2880 intermediate size",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_what_does(name, options, said):
    assert any(said in problem for problem in found(name, **options)), found(name, **options)


@pytest.mark.parametrize(
    ("name", "quantization", "ways"),
    [
        ("llama-3.1-8b", "int4_awq", [1, 2, 4, 8, 16]),
        ("qwen2.5-7b", "int4_awq", [1, 2, 4]),
        ("qwen2.5-7b", "fp8", [1, 2, 4]),
        ("qwen3-30b-a3b", "w4a8_awq", [1, 2]),
        ("qwen3-30b-a3b", "nvfp4", [1, 2, 4, 8, 16]),
        ("phi-3.5-mini", "int4_awq", [1, 2, 4, 8]),
    ],
)
def test_a_gpus_part_is_whole_blocks(name, quantization, ways):
    possible = [1, 2, 4, 8, 16]
    fitting = [w for w in possible if not found(name, tensor_parallel=w, quantization=quantization)]
    assert fitting == ways
