"""`build` for GPU runtimes, with stand-ins for upstream's tools: resumed, redone, failing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from build_engines.build import build_all, show_all
from build_engines.errors import BuildError
from build_engines.gpu.toolkit import Toolkit
from build_engines.models_file import ModelsFile, OnnxEntry
from tests.doubles import upstream_tools
from tests.doubles.upstream_tools import calls, misbehave
from tests.fixtures.adapters import write
from tests.fixtures.families import OPTIONS
from tests.fixtures.random_model import make

DEVICE = {"memory_gb": 80, "architecture": "hopper"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    make("llama", folder)
    return folder


@pytest.fixture(scope="module")
def tables(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last step's folder: it takes seconds, and is the same for all of these models."""
    folder = tmp_path_factory.mktemp("tables")
    build(folder, upstream_tools.install(folder), models(weights, "tensorrt_llm"))
    return next((folder / "artifacts" / "steps" / "m").glob("tables-*"))


@pytest.fixture
def done_tables(tables: Path, tmp_path: Path) -> None:
    shutil.copytree(tables, tmp_path / "artifacts" / "steps" / "m" / tables.name)


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolkit:
    found = upstream_tools.install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return found


def models(weights: Path, runtime: str, **gpu: object) -> ModelsFile:
    entry = {"weights": str(weights), "runtime": runtime, "gpu": {**DEVICE, **gpu}}
    return ModelsFile.model_validate({"models": {"m": entry}})


def build(folder: Path, toolkit: Toolkit, given: ModelsFile) -> list[str]:
    """Returns what was said."""
    said: list[str] = []
    build_all(given, folder / "artifacts", say=said.append, tensorrt_llm=toolkit)
    return said


def ran(folder: Path) -> list[str]:
    return [call[0] for call in calls(folder)]


def rendered(folder: Path, model: str) -> ModelConfig:
    path = folder / "artifacts" / "model_repository" / model / "config.pbtxt"
    return text_format.Parse(path.read_text(), ModelConfig())


def parameters(folder: Path, model: str) -> dict[str, str]:
    return {key: v.string_value for key, v in rendered(folder, model).parameters.items()}


@pytest.mark.usefixtures("done_tables")
def test_a_plan_is_built_once_and_redone_as_far_as_a_change_reaches(tmp_path, weights, toolkit):
    given = models(weights, "tensorrt_llm", engine="plan", tensor_parallel=2)
    said = build(tmp_path, toolkit, given)
    assert ran(tmp_path) == ["convert_llama", "build"]
    assert said[0].startswith("m: engine plans and NVIDIA's C++ backend are legacy: ")
    assert said[-4:] == [
        "m: [1/3] check",
        "m: [2/3] checkpoint",
        "m: [3/3] plan",
        "m: built, with 4096 tokens of context",
    ]
    built = tmp_path / "artifacts" / "m"
    assert sorted(path.name for path in (built / "engine").iterdir()) == [
        "config.json",
        "rank0.engine",
        "rank1.engine",
    ]
    assert json.loads((built / "facts.json").read_text())["end_ids"]

    assert build(tmp_path, toolkit, given) == []
    assert ran(tmp_path) == ["convert_llama", "build"]

    smaller = models(weights, "tensorrt_llm", engine="plan", tensor_parallel=2, max_batch_size=8)
    build(tmp_path, toolkit, smaller)
    assert ran(tmp_path) == ["convert_llama", "build", "build"]
    kept = [path for path in (tmp_path / "artifacts" / "steps" / "m").iterdir() if path.is_dir()]
    assert len(kept) == 4, "what the earlier options made is removed"


@pytest.mark.usefixtures("done_tables")
def test_a_quantized_plan_measures_the_texts_that_ship_here(tmp_path, weights, toolkit):
    build(tmp_path, toolkit, models(weights, "tensorrt_llm", engine="plan", quantization="fp8"))
    (quantize, *given), (plan, *_) = calls(tmp_path)
    assert (quantize, plan) == ("quantize", "build")
    texts = Path(given[given.index("--calib_dataset") + 1])
    (file,) = texts.iterdir()  # the form that upstream's load_dataset(folder, split="train") takes
    assert file.name == "train.jsonl"
    assert all(json.loads(line)["text"] for line in file.read_text().splitlines())
    told = parameters(tmp_path, "m_engine")
    assert (told["runtime"], told["trtllm_backend"]) == ("tensorrt_llm", "tensorrt")
    assert Path(json.loads(told["llm_args"])["tokenizer"]) == weights
    engine = tmp_path / "artifacts" / "m" / "engine"
    assert not os.readlink(engine).startswith("/"), "artifacts/ may be moved"
    assert (engine / "rank0.engine").is_file()


@pytest.mark.usefixtures("done_tables")
def test_the_engine_gets_its_gpus_and_limits_and_the_tokenizer_the_default(
    tmp_path, weights, toolkit
):
    """A change of these is no reason to run a tool again."""
    build(tmp_path, toolkit, models(weights, "tensorrt_llm"))
    plain = parameters(tmp_path, "m_engine")
    assert (plain["devices"], plain["single_process"], plain["hang_seconds"]) == (
        "",
        "false",
        "300.0",
    )
    assert plain["max_log_probs"] == "1"
    assert parameters(tmp_path, "m_tokenizer")["default_max_tokens"] == "4096"
    chosen = models(
        weights, "tensorrt_llm", devices=[3], hang_seconds=60, mpi="single_process", sampler="torch"
    )
    build(tmp_path, toolkit, chosen)
    told = parameters(tmp_path, "m_engine")
    assert (told["devices"], told["single_process"], told["hang_seconds"]) == ("3", "true", "60.0")
    assert told["max_log_probs"] == "20"
    assert ran(tmp_path) == []


@pytest.mark.usefixtures("done_tables")
@pytest.mark.parametrize(
    ("gpu", "rows", "interval", "unfinished"),
    [
        ({}, 2048, 8, 2048 + 4096),  # a tiny model on 80 GB
        ({"memory_gb": 3, "kv_cache": {"fraction": 0.02}}, 256, 4, 256 + 4096),
        ({"max_batch_size": 8, "max_num_tokens": 64}, 8, 1, 8 + 256),
    ],
)
def test_rows_that_are_left_out_are_the_same_for_engine_queue_and_proxy(
    tmp_path, weights, toolkit, gpu, rows, interval, unfinished
):
    build(tmp_path, toolkit, models(weights, "tensorrt_llm", **gpu))
    told = parameters(tmp_path, "m_engine")
    arguments = json.loads(told["llm_args"])
    assert (arguments["max_batch_size"], arguments["stream_interval"]) == (rows, interval)
    assert arguments["cuda_graph_config"]["max_batch_size"] == rows
    assert not arguments["enable_iter_perf_stats"]
    assert parameters(tmp_path, "m")["rows"] == str(rows)
    assert told["max_unfinished"] == str(unfinished)


@pytest.mark.usefixtures("done_tables")
def test_further_arguments_reach_the_engine_and_a_wrong_one_stops_the_build(
    tmp_path, weights, toolkit
):
    build(tmp_path, toolkit, models(weights, "tensorrt_llm", llm_args={"print_iter_log": True}))
    told = json.loads(parameters(tmp_path, "m_engine")["llm_args"])
    assert told["print_iter_log"] is True
    wrong = models(weights, "tensorrt_llm", llm_args={"print_iter_logs": True})
    with pytest.raises(BuildError, match=r"llm_args\.print_iter_logs: did you mean print_iter_log"):
        build(tmp_path, toolkit, wrong)


@pytest.mark.usefixtures("done_tables")
def test_a_plan_over_the_llm_api_keeps_the_limits_that_it_was_built_with(
    tmp_path, weights, toolkit
):
    given = models(weights, "tensorrt_llm", engine="plan", max_batch_size=3, max_num_tokens=4096)
    build(tmp_path, toolkit, given)
    arguments = json.loads(parameters(tmp_path, "m_engine")["llm_args"])
    plan = json.loads((tmp_path / "artifacts" / "m" / "engine" / "config.json").read_text())
    for name in ("max_batch_size", "max_num_tokens"):
        assert arguments[name] == plan["build_config"][name]


def test_a_checkpoints_own_file_and_its_experts_decide_the_memory_and_the_rows(
    tmp_path, weights, toolkit
):
    """A mixture as Model-Optimizer exports it; each of two GPUs has requests of its own."""
    mixture = tmp_path / "mixture"
    shutil.copytree(weights, mixture)
    config = json.loads((mixture / "config.json").read_text())
    (mixture / "config.json").write_text(json.dumps({**config, "num_local_experts": 8}))
    quantized = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (mixture / "hf_quant_config.json").write_text(json.dumps(quantized))
    given = models(mixture, "tensorrt_llm", tensor_parallel=2, attention_dp=True, memory_gb=1.8)
    said = build(tmp_path, toolkit, given)
    heads = config["num_key_value_heads"] * config["hidden_size"] // config["num_attention_heads"]
    token = config["num_hidden_layers"] * 2 * heads
    assert f"one token of KV cache takes {token:,} bytes" in said[0], "a byte for each number"
    facts = json.loads((tmp_path / "artifacts" / "m" / "facts.json").read_text())
    assert facts["kv_token_bytes"] == token
    assert parameters(tmp_path, "m")["rows"] == "2048"
    told = json.loads(parameters(tmp_path, "m_engine")["llm_args"])
    assert told["max_batch_size"] == 1024, "half of it with two bytes for each number"


@pytest.mark.usefixtures("done_tables")
def test_the_cpp_backends_models_are_rendered_with_its_plan_and_its_limits(
    tmp_path, weights, toolkit
):
    build(tmp_path, toolkit, models(weights, "tensorrtllm", quantization="int8_wo"))
    assert sorted(ran(tmp_path)) == ["build", "guide_info", "quantize"]
    built = tmp_path / "artifacts" / "m"
    assert rendered(tmp_path, "m_engine").backend == "tensorrtllm"
    told = parameters(tmp_path, "m_engine")
    assert Path(told["gpt_model_path"]) == (built / "engine").resolve()
    assert Path(told["xgrammar_tokenizer_info_path"]).is_file()
    tokenizer = parameters(tmp_path, "m_tokenizer")
    assert tokenizer["executor_end_ids"] == parameters(tmp_path, "m")["end_ids"]
    assert "structural_tag" not in tokenizer["guide_kinds"]
    assert tokenizer["guide_compile_s"] == "0.3"


@pytest.mark.usefixtures("done_tables")
def test_adapters_are_named_to_the_engine_and_to_the_proxy(tmp_path, weights, toolkit):
    adapter = write(tmp_path / "sql", ("q_proj", "o_proj"))
    build(
        tmp_path, toolkit, models(weights, "tensorrt_llm", lora={"adapters": {"sql": str(adapter)}})
    )
    engine = parameters(tmp_path, "m_engine")
    assert json.loads(engine["lora_adapters"]) == {"sql": str(adapter)}
    told = json.loads(engine["llm_args"])["lora_config"]
    assert told["lora_target_modules"] == ["attn_k", "attn_dense", "attn_q", "attn_v"]
    assert parameters(tmp_path, "m")["lora_adapters"] == '["sql"]'
    assert "lora_name" in {row.name for row in rendered(tmp_path, "m").input}


@pytest.mark.usefixtures("done_tables")
def test_adapters_are_checked_before_a_tool_runs_and_again_for_another_limit(
    tmp_path, weights, toolkit
):
    lora = {"adapters": {"sql": str(write(tmp_path / "sql", rank=16))}}
    given = {"engine": "plan", "lora": lora | {"max_rank": 8}}
    with pytest.raises(BuildError, match=r"check_adapters: .*sql has rank 16: lora\.max_rank is 8"):
        build(tmp_path, toolkit, models(weights, "tensorrt_llm", **given))
    assert ran(tmp_path) == []
    build(tmp_path, toolkit, models(weights, "tensorrt_llm", **given | {"lora": lora}))
    with pytest.raises(BuildError, match="check_adapters"):
        build(tmp_path, toolkit, models(weights, "tensorrt_llm", **given))


@pytest.mark.usefixtures("done_tables")
@pytest.mark.parametrize(
    ("tool", "how", "said"),
    [
        ("build", "exit", r"plan: trtllm-build .* exit status 3: CUDA out of memory .*plan\.log"),
        (
            "build",
            "incomplete",
            r"plan: the tool ended without an error, but .*rank0\.engine is missing",
        ),
        ("convert_llama", "exit", r"checkpoint: .*convert_checkpoint\.py .* exit status 3"),
    ],
)
def test_a_tool_that_fails_is_named_and_the_next_run_goes_on_from_there(
    tmp_path, weights, toolkit, tool, how, said
):
    given = models(weights, "tensorrt_llm", engine="plan")
    misbehave(tmp_path, tool, how)
    with pytest.raises(BuildError, match=said):
        build(tmp_path, toolkit, given)
    assert not (tmp_path / "artifacts" / "m").exists()
    before = ran(tmp_path)
    misbehave(tmp_path, tool, None)
    build(tmp_path, toolkit, given)
    assert ran(tmp_path)[len(before) :] == (
        ["build"] if tool == "build" else ["convert_llama", "build"]
    )
    assert not (tmp_path / "artifacts" / "m" / "engine" / "half").exists()


def test_a_dry_run_writes_nothing_and_names_everything(tmp_path, weights, toolkit):
    given = models(weights, "tensorrtllm", quantization="int8_wo", tensor_parallel=2)
    said: list[str] = []
    show_all(given, tmp_path / "artifacts", say=said.append, tensorrt_llm=toolkit)
    text = "\n".join(said)
    assert ran(tmp_path) == []
    assert not (tmp_path / "artifacts").exists()
    for part in (
        "--qformat int8_wo",
        "trtllm-build",
        "generate_xgrammar_tokenizer_info.py",
        "token_bytes.npz",
        "artifacts/m/engine to ",
        "model_repository/m_engine/",
    ):
        assert part in text


def test_a_model_for_gpus_does_not_stand_in_the_way_of_others(tmp_path, weights, artifacts):
    """On a laptop, where TensorRT-LLM is not installed."""
    given = models(weights, "tensorrt_llm")
    small = OnnxEntry(weights=artifacts / "weights" / "llama", onnx=OPTIONS)
    target = tmp_path / "artifacts"
    shutil.copytree(artifacts / "llama", target / "llama", symlinks=True)
    said: list[str] = []
    both = ModelsFile(models={"llama": small, **given.models})
    build_all(both, target, only=["llama"], say=said.append)
    assert (target / "model_repository" / "llama_engine").is_dir()
    with pytest.raises(BuildError, match=r"TensorRT-LLM is not installed here: run this in nvcr"):
        build_all(both, target, say=said.append)
