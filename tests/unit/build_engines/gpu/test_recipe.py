"""recipe: the commands that published models give, flag by flag, what a change redoes, and every
reason why not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build_engines.errors import BuildError
from build_engines.gpu import recipe
from build_engines.gpu.architecture import OWN_FILE
from build_engines.gpu.device import Device
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.recipe import sharding_problems
from build_engines.gpu.steps import PROGRAM
from tests.fixtures.published import MODEL_OPTIMIZER_FP8, PARAMETERS, config, shape
from tests.unit.build_engines.gpu.recipes import context, entry, keys, make, shown


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
    ("name", "gpu", "said"),
    [
        ("mixtral-8x7b", {"quantization": "int4_awq"}, "has no int4_awq of experts as nvidia"),
        ("gpt-oss-20b", {"quantization": "fp8"}, "the weights are mxfp4 already: leave out"),
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
        ("qwen2.5-7b", {"speculative": {"method": "mtp"}}, "has no layers for multi-token pred"),
        ("kimi-k2", {"speculative": {"method": "mtp"}}, "has no layers for multi-token prediction"),
        ("deepseek-v2-lite", {}, "has no DeepSeek-V2, only DeepSeek-V3 and its like"),
        ("deepseek-v2-lite", {"quantization": "fp8"}, "latent attention is not quantized here"),
        ("deepseek-v3", {"engine": "plan"}, "not deepseek_v3: use engine: pytorch"),
        ("deepseek-v3", {"quantization": "nvfp4"}, "the weights are fp8 already: leave out"),
        ("deepseek-v3", {"lora": {"adapters": {"a": "l"}}}, "no adapters for models with latent"),
        (
            "llama-3.1-8b",
            {"tensor_parallel": 2, "attention_dp": True},
            "attention_dp splits experts only, and this model has none",
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
        ("0.21.0", {}, "0.21.0 has no stable PyTorch runtime: use engine: plan"),
        ("0.16.0", {}, "0.16.0 is too old: use 0.20.0 or later"),
        (
            "1.3.0rc24",
            {"speculative": {"method": "ngram"}},
            "has other names for speculative decoding",
        ),
    ],
)
def test_the_version_decides_what_is_possible(tmp_path, version, gpu, said):
    with pytest.raises(BuildError) as error:
        make(tmp_path, "llama-3.1-8b", gpu, version=version)
    assert said in str(error.value)


B200 = Device(memory_gb=192, architecture="blackwell")


@pytest.mark.parametrize(
    "gpu",
    [
        {"tensor_parallel": 8},
        {"tensor_parallel": 8, "expert_parallel": 8, "attention_dp": True},
        {"tensor_parallel": 8, "speculative": {"method": "mtp", "layers": 3}},
    ],
)
def test_latent_attention_is_served_as_it_is_published(tmp_path, gpu):
    found = make(tmp_path, "deepseek-v3", {**gpu, "max_seq_len": 32_768}, device=B200)
    assert [step.name for step in found.steps] == ["weights", "check", "tables"]


def test_latent_attention_on_older_gpus_names_what_upstream_would_switch_off(tmp_path):
    old, gpu = Device(memory_gb=192, architecture="ada"), {"tensor_parallel": 8}
    with pytest.raises(BuildError, match=r"has chunked_prefill and kv_cache\.reuse from Hopper on"):
        make(tmp_path, "deepseek-v3", gpu, device=old)
    without = {"chunked_prefill": False, "max_num_tokens": 32_768, "max_seq_len": 32_768}
    make(tmp_path, "deepseek-v3", {**gpu, **without, "kv_cache": {"reuse": False}}, device=old)


@pytest.mark.parametrize(
    ("version", "quantization", "is_read"),
    [
        ("1.2.1", {"quant_method": "fp8", "weight_block_size": [128, 128]}, True),
        ("1.2.1", {"quant_method": "mxfp4"}, True),
        ("1.2.1", {"quant_method": "compressed-tensors"}, False),
        ("1.3.0", {"quant_method": "compressed-tensors"}, True),
        ("1.2.1", {"quant_method": "modelopt", "quant_algo": "FP8"}, False),
        ("1.3.0", {"quant_method": "modelopt", "quant_algo": "FP8"}, True),
        ("1.3.0", {"quant_method": "gptq"}, False),
        ("1.3.0", {"quant_method": "fp8"}, False),
    ],
)
def test_a_quantization_that_upstream_would_ignore_is_refused(
    tmp_path, version, quantization, is_read
):
    llama = {**config("llama-3.1-8b"), "quantization_config": quantization}
    given = entry(tmp_path, "tensorrt_llm", {"max_seq_len": 8192})
    if is_read:
        recipe.make(given, llama, context(tmp_path, version))
        return
    with pytest.raises(BuildError, match="would read as 16-bit weights: it knows fp8, mxfp4"):
        recipe.make(given, llama, context(tmp_path, version))


def test_model_optimizers_file_makes_any_quantization_readable(tmp_path):
    given = entry(tmp_path, "tensorrt_llm", {})
    llama = {**config("llama-3.1-8b"), OWN_FILE: MODEL_OPTIMIZER_FP8}
    found = recipe.make(given, llama, context(tmp_path))
    assert "one token of KV cache takes 65,536 bytes" in found.notes[0]
    fp8 = entry(tmp_path, "tensorrt_llm", {"kv_cache": {"dtype": "fp8"}})
    four = {**llama, OWN_FILE: {**MODEL_OPTIMIZER_FP8, "kv_cache_quant_algo": "NVFP4"}}
    with pytest.raises(BuildError, match=r"KV cache is nvfp4: leave out kv_cache\.dtype"):
        recipe.make(fp8, four, context(tmp_path))


def test_all_reasons_are_told_at_once(tmp_path):
    with pytest.raises(BuildError) as error:
        make(tmp_path, "qwen2.5-7b", {"tensor_parallel": 5}, version="0.21.0")
    assert str(error.value).count(";") >= 2


def test_what_nobody_knows_of_the_gpu_is_noted_not_guessed(tmp_path):
    found = make(tmp_path, "llama-3.1-70b", {}, device=Device())
    needed, default, memory, architecture = found.notes
    assert needed.startswith("memory of a GPU: 141.1 GB of weights")
    assert "sampling.max_tokens" in default
    assert memory.startswith("memory is not checked")
    assert architecture.startswith("the GPU's architecture is not checked")


@pytest.mark.parametrize("name", [*PARAMETERS, "deepseek-v3", "kimi-k2"])
def test_models_of_upstreams_list_are_not_noted(tmp_path, name):
    big = Device(memory_gb=2000, architecture="blackwell")
    assert not any("models has no" in note for note in make(tmp_path, name, {}, device=big).notes)


def test_a_model_that_upstreams_list_does_not_have_is_noted(tmp_path):
    strange = {**config("llama-3.1-8b"), "architectures": ["FalconForCausalLM"]}
    given = entry(tmp_path, "tensorrt_llm", {"max_seq_len": 8192})
    assert "has no FalconForCausalLM" in recipe.make(given, strange, context(tmp_path)).notes[0]


def test_the_notes_tell_the_default_of_max_tokens_and_the_requests_that_fit(tmp_path):
    by_default = make(tmp_path, "llama-3.1-8b", {}).notes
    chosen = make(tmp_path, "llama-3.1-8b", {}, sampling={"max_tokens": 100}).notes
    assert "requests without max_tokens get 4,096 new tokens at most" in by_default[2]
    assert "requests of 5,120 tokens at once" in by_default[3]
    assert not [note for note in chosen if "requests without max_tokens" in note]
    assert "requests of 1,124 tokens at once" in chosen[2]


def test_changed_weights_redo_all_that_is_made_of_them(tmp_path):
    before = keys(make(tmp_path, "llama-3.1-8b", {"quantization": "fp8"}))
    (tmp_path / "weights" / "config.json").write_text(json.dumps(config("llama-3.1-8b")))
    after = keys(make(tmp_path, "llama-3.1-8b", {"quantization": "fp8"}))
    kept = {name for name in after if after[name] == before[name]}
    assert kept == {"quantization_environment", "calibration"}


def test_moving_artifacts_redoes_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = (
        keys(make(tmp_path / folder, "llama-3.1-8b", {"quantization": "fp8"})) for folder in "ab"
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
        ("deepseek-v3", [1, 2, 4, 8, 16]),  # the experts' blocks of 128 weights
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
        ("deepseek-v3", 32, [2, 4, 8, 16, 32]),
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
