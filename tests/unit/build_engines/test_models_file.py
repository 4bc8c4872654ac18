"""models_file: each error names the line; the published schema is the reader's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from build_engines import models_schema
from build_engines.models_file import (
    ModelsFileError,
    OnnxEntry,
    TensorrtLlmEntry,
    load,
)
from build_engines.weights import HubRepository, LocalFolder, StoredObjects

ROOT = Path(__file__).parents[3]
GPU = """\
models:
  big:
    weights: hf://org/big@v1
    runtime: tensorrt_llm
    aliases: [gpt-4o]
    gpu:
      quantization: fp8
      tensor_parallel: 4
      gpus_per_node: 8
      kv_cache:
        dtype: fp8
        host_offload_gb: 16
      speculative:
        method: eagle3
        draft: drafts/big
"""
TUNED = """\
models:
  big:
    weights: hf://org/big@v1
    runtime: tensorrt_llm
    aliases: [gpt-4o]
    gpu:
      lora:
        adapters: {sql: adapters/sql}
"""


def read(folder: Path, text: str):
    (folder / "models.yaml").write_text(text)
    return load(folder / "models.yaml").models


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ModelsFileError) as error:
        read(folder, text)
    return str(error.value).removeprefix(f"{folder}/")


def test_a_gpu_model_is_read_with_its_options(tmp_path):
    entry = read(tmp_path, GPU)["big"]
    assert isinstance(entry, TensorrtLlmEntry)
    assert entry.weights == HubRepository("org/big", "v1")
    assert entry.gpu.world_size == 4
    assert entry.gpu.speculative.draft == LocalFolder(tmp_path / "drafts" / "big")
    tuned = read(tmp_path, TUNED)["big"]
    assert tuned.gpu.lora.adapters == {"sql": LocalFolder(tmp_path / "adapters" / "sql")}


def test_a_model_that_names_no_runtime_is_for_the_cpu(tmp_path):
    entry = read(tmp_path, "models: {small: {weights: w}}")["small"]
    assert isinstance(entry, OnnxEntry)
    assert entry.weights == LocalFolder(tmp_path / "w")


def test_a_calibration_file_is_relative_to_models_yaml(tmp_path):
    given = "      calibration: {file: texts/ours.jsonl}\n      tensor_parallel: 4"
    entry = read(tmp_path, GPU.replace("      tensor_parallel: 4", given))["big"]
    assert entry.gpu.calibration.file == tmp_path / "texts" / "ours.jsonl"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("dtype: fp8", "dtype: int4", 11, "models.big.gpu.kv_cache.dtype: Input should be"),
        ("dtype: fp8", "dtype: int8", 11, "models.big.gpu.kv_cache.dtype: the PyTorch runtime"),
        (
            "gpus_per_node: 8",
            "llm_args: {kv_cache_config: {dtype: fp8}}",
            9,
            "models.big.gpu.llm_args.kv_cache_config.dtype: is set by gpu.kv_cache.dtype: use that",
        ),
        ("aliases: [gpt-4o]", "aliases: [gpt-4o, 5]", 5, "models.big.aliases.1: Input should"),
        ("quantization", "quantisation", 7, "models.big.gpu.quantisation: unknown key: did you"),
        ("eagle3", "medusa", 13, "tag 'medusa' found using 'method' does not match any"),
        ("        draft: drafts/big\n", "", 13, "models.big.gpu.speculative.eagle3.draft: is mis"),
        ("hf://org/big@v1", "hf://big", 3, "'hf://big' is not a Hugging Face repository"),
        (
            "tensorrt_llm",
            "sglang",
            2,
            "runtime must be onnx, scripted, embedding, tensorrt_llm",
        ),
        ("tensorrt_llm", "tensorrtllm", 14, "plans support lookahead only"),
        ("    weights: hf://org/big@v1\n", "", 2, "models.big.weights: is missing"),
        ("models:\n", "model:\n", 1, "model: unknown key: did you mean 'models'?"),
        ("    aliases: [gpt-4o]\n", "    context_length: 9\n", 5, "greater than or equal to 16"),
        (
            "    aliases: [gpt-4o]",
            "    limits: {tokens: 9}",
            5,
            "models.big.limits.tokens: unknown key",
        ),
        (
            "      tensor_parallel: 4",
            "      calibration: {dataset: cnn_dailymail}",
            8,
            "models.big.gpu.calibration: dataset is no longer an option",
        ),
        (
            "      tensor_parallel: 4",
            "      calibration: {file: texts.csv}",
            8,
            "models.big.gpu.calibration.file: must be a .jsonl or .txt file",
        ),
        ("    aliases: [gpt-4o]", "    limits: {max_tokens: 0}", 5, "greater than or equal to 1"),
    ],
)
def test_an_error_names_its_line(tmp_path, old, new, line, said):
    assert old in GPU
    message = refused(tmp_path, GPU.replace(old, new, 1))
    assert message.startswith(f"models.yaml:{line}: "), message
    assert said in message


@pytest.mark.parametrize(
    ("old", "new", "line", "place", "meant"),
    [
        ("    weights: hf", "    weigths: hf", 3, "weigths", "weights"),
        ("    runtime: ", "    runtme: ", 4, "runtme", "runtime"),
        ("aliases", "Alias", 5, "Alias", "aliases"),
        ("tensor_parallel", "tensor-paralell", 8, "gpu.tensor-paralell", "tensor_parallel"),
        ("host_offload", "host_ofload", 12, "gpu.kv_cache.host_ofload_gb", "host_offload_gb"),
        ("draft:", "drafts:", 15, "gpu.speculative.eagle3.drafts", "draft"),
    ],
)
def test_a_misspelt_key_is_named_before_what_is_missing(tmp_path, old, new, line, place, meant):
    assert old in GPU
    message = refused(tmp_path, GPU.replace(old, new, 1))
    said = f"models.yaml:{line}: models.big.{place}: unknown key: did you mean {meant!r}?"
    assert message.startswith(said), message


def test_keys_of_lists_and_of_the_default_runtime_are_known_too(tmp_path):
    text = "models:\n  m:\n    weights: w\n    onnx: {precison: int4}\n"
    said = "models.yaml:4: models.m.onnx.precison: unknown key: did you mean 'precision'?"
    assert refused(tmp_path, text) == said
    tool = "{url: 'https://x.example', heders: {}}"
    text = f"models:\n  m:\n    weights: w\n    server_tools:\n      t: {tool}\n"
    said = "models.yaml:5: models.m.server_tools.t.heders: unknown key: did you mean 'headers'?"
    assert refused(tmp_path, text) == said


def test_a_misspelt_limit_is_told_what_it_resembles(tmp_path):
    text = "models:\n  m:\n    weights: w\n    limits: {max_tokns: 5}\n"
    said = "models.yaml:4: models.m.limits.max_tokns: unknown key: did you mean 'max_tokens'?"
    assert refused(tmp_path, text) == said


def test_a_key_that_is_like_no_other_is_answered_with_those_there_are(tmp_path):
    message = refused(tmp_path, "models:\n  m: {weights: w, gpu: {}}\n")
    assert message.startswith(
        "models.yaml:2: models.m.gpu: unknown key: it must be one of aliases, "
    )
    assert ", weights, " in message
    assert message.endswith(", onnx")


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("[gpt-4o]", "[gpt-4o, big]", 5, "models.big.aliases.1: 'big' names"),
        ("sql: ", "gpt-4o: ", 8, "models.big.gpu.lora.adapters.gpt-4o: 'gpt-4o' names"),
        ("sql: ", "big: ", 8, "models.big.gpu.lora.adapters.big: 'big' names another model"),
    ],
)
def test_a_name_that_is_taken_is_refused_where_it_stands(tmp_path, old, new, line, said):
    message = refused(tmp_path, TUNED.replace(old, new, 1))
    assert message.startswith(f"models.yaml:{line}: {said}"), message


def test_two_models_cannot_have_adapters_of_one_name(tmp_path):
    entry = "{weights: w, runtime: tensorrt_llm, gpu: {lora: {adapters: {sql: a}}}}"
    message = refused(tmp_path, TUNED + f"  other: {entry}\n")
    said = "models.yaml:9: models.other.gpu.lora.adapters.sql: 'sql' names another model already"
    assert message == said


def test_more_errors_are_counted(tmp_path):
    text = GPU.replace("tensor_parallel: 4", "tensor_parallel: none").replace("eagle3", "x")
    assert refused(tmp_path, text).endswith("(and 1 more)")


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path):
    text = GPU + "    runtime: onnx\n"
    assert "'runtime' stands in lines 4 and 16" in refused(tmp_path, text)


def test_broken_yaml_names_its_line(tmp_path):
    assert "line 2" in refused(tmp_path, "models:\n  a: {weights: w\n")


def test_a_length_that_the_engine_does_not_have_is_refused(tmp_path):
    text = GPU.replace("      quantization: fp8", "      max_seq_len: 4096").replace(
        "    aliases: [gpt-4o]", "    context_length: 8192"
    )
    message = refused(tmp_path, text)
    assert message.startswith("models.yaml:7: models.big.gpu.max_seq_len: context_length is 8192")


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("s3://bucket/llama", StoredObjects("s3://bucket/llama")),
        ("gs://bucket/llama.tar.gz", StoredObjects("gs://bucket/llama.tar.gz")),
        ("https://host/llama.tgz", StoredObjects("https://host/llama.tgz")),
        ("hf://org/name", HubRepository("org/name")),
        ("/abs/olute", LocalFolder(Path("/abs/olute"))),
    ],
)
def test_where_weights_can_be(tmp_path, text, weights):
    found = read(tmp_path, f"models: {{m: {{weights: '{text}'}}}}")["m"].weights
    assert (found, str(found)) == (weights, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://host/folder", "https:// lists no folder"),
        ("ftp://host/llama.tar", "cannot be fetched: it must be a folder, hf://"),
        ("s3://", "cannot be fetched"),
        ("hf://org/name/sub", "not a Hugging Face repository"),
        ("", "must be a folder"),
    ],
)
def test_where_weights_cannot_be(tmp_path, text, said):
    assert said in refused(tmp_path, f"models: {{m: {{weights: '{text}'}}}}")


def test_the_published_schema_is_that_of_the_reader():
    assert models_schema.PATH.read_text() == models_schema.text(), (
        "write it anew: python -m build_engines.models_schema"
    )


def test_models_yaml_names_the_schema_for_editors():
    first = (ROOT / "models.yaml").read_text().splitlines()[0]
    name = first.partition("$schema=")[2]
    assert (ROOT / name).samefile(models_schema.PATH)
    yaml.safe_load((ROOT / "models.yaml").read_text())


SHARED = """\
models:
  a: {weights: w, runtime: tensorrt_llm, gpu: {kv_cache: {fraction: 0.6}}}
  b:
    weights: w
    runtime: tensorrt_llm
    gpu: {devices: [0], kv_cache: {fraction: 0.5}}
"""


def test_two_models_that_claim_more_than_a_gpu_are_refused_with_names_and_figures(tmp_path):
    message = refused(tmp_path, SHARED)
    assert message.startswith("models.yaml:2: models.a.gpu.devices: the models on GPU 0 claim 1.1")
    assert "a takes 0.6 (without devices, it uses the first GPUs), b takes 0.5" in message
    assert len(read(tmp_path, SHARED.replace("[0]", "[1]"))) == 2
    assert len(read(tmp_path, SHARED.replace("0.6", "0.5"))) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("lora: {adapters: {sql: a}}", "gpu.lora: the C++ backend takes adapters as"),
        ("engine: pytorch", "gpu.engine: Input should be 'plan'"),
        ("mpi: spawn", "gpu.mpi: the C++ backend needs mpirun with several GPUs only"),
        ("devices: [GPU-0f1e2d3c]", "gpu.devices: the C++ backend takes indices only"),
        ("hang_seconds: 9", "gpu.hang_seconds: only the engine of runtime: tensorrt_llm watches"),
        (
            "tensor_parallel: 4, gpus_per_node: 2, devices: [0, 1]",
            "gpu.devices: the C++ backend takes no devices for a model over several nodes",
        ),
    ],
)
def test_the_cpp_backend_refuses_what_it_does_not_have(tmp_path, options, said):
    text = f"models: {{m: {{weights: w, runtime: tensorrtllm, gpu: {{{options}}}}}}}"
    assert said in refused(tmp_path, text)


@pytest.mark.parametrize("name", ["GPU", "gpu-0f1e2d3c", "first", "GPU-xyzw", "-1"])
def test_a_gpu_is_named_by_an_index_or_a_uuid(tmp_path, name):
    given = f"'{name}'" if name != "-1" else name
    text = f"models: {{m: {{weights: w, runtime: tensorrt_llm, gpu: {{devices: [{given}]}}}}}}"
    assert "gpu.devices" in refused(tmp_path, text)


def test_models_on_gpus_have_a_default_of_max_tokens(tmp_path):
    text = "models: {m: {weights: w, runtime: tensorrt_llm%s}, small: {weights: w}}"
    found = read(tmp_path, text % "")
    assert found["m"].default_max_tokens == 4096
    assert found["small"].default_max_tokens is None
    chosen = read(tmp_path, text % ", sampling: {max_tokens: 9}")
    assert chosen["m"].default_max_tokens == 9


@pytest.mark.parametrize("off", ["off", "'off'"])
def test_off_needs_no_quotes(tmp_path, off):
    """YAML reads it as false."""
    text = f"models: {{m: {{weights: w, runtime: tensorrt_llm, gpu: {{guided_decoding: {off}}}}}}}"
    assert read(tmp_path, text)["m"].gpu.guided_decoding == "off"


def test_a_chat_template_is_the_text_of_a_file_next_to_models_yaml(tmp_path):
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    models = read(tmp_path, "models: {a: {weights: w, chat_template: own.jinja}, b: {weights: w}}")
    assert (models["a"].chat_template, models["b"].chat_template) == ("{{ messages }}", False)
    error = refused(tmp_path, "models: {a: {weights: w, chat_template: none.jinja}}")
    assert error.startswith("models.yaml:1: models.a.chat_template: cannot read ")
    assert "none.jinja: No such file" in error


OF_PYDANTIC = re.compile(
    r"instance of|Input should be a valid (dict|tuple|list)|\b[A-Z][a-z]+[A-Z]\w+"
)
RUNTIMES = "runtime must be onnx, scripted, embedding, tensorrt_llm, tensorrtllm, vllm or remote"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file: must have fields"),
        ("- a", "1: the file: must have fields"),
        ("models: [a]", "1: models: must have fields"),
        ("models:\n  mine: ../folder", "2: models.mine: write `weights: ../folder` below it"),
        ("models:\n  mine: hf://a/b", "2: models.mine: write `weights: hf://a/b` below it"),
        ("models:\n  mine:", "2: models.mine: must have fields, such as `weights:` below it"),
        ("models:\n  mine: 7", "2: models.mine: must have fields, such as `weights:` below it"),
        ("models:\n  mine: [weights]", "2: models.mine: must have fields, such as `weights:`"),
        ("models:\n  mine: {weights: w, onnx: 3}", "2: models.mine.onnx: must have fields"),
        ("models:\n  mine: {weights: w, price: 3}", "2: models.mine.price: must have fields"),
        ("models:\n  mine: {weights: w, aliases: 4}", "2: models.mine.aliases: must be a list"),
        (
            "models:\n  mine: {weights: w, deployments: 3}",
            "2: models.mine.deployments: must be",
        ),
        ("models:\n  mine: {runtime: onnx}", "2: models.mine.weights: is missing"),
        (
            "models:\n  mine: {weights: w, runtime: tensorrt}",
            f"2: models.mine: {RUNTIMES}; did you mean tensorrtllm or tensorrt_llm?",
        ),
        (
            "models:\n  mine: {weights: w, runtime: vLLM}",
            f"2: models.mine: {RUNTIMES}; did you mean vllm?",
        ),
        ("models:\n  mine: {weights: w, runtime: 7}", f"2: models.mine: {RUNTIMES}"),
        ("models:\n  mine: {weights: w, runtime: [a]}", f"2: models.mine: {RUNTIMES}"),
        ("models: {m: {weights: w}}\npools: 3", "2: pools: must have fields"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_file(tmp_path, text, said):
    message = refused(tmp_path, text + "\n")
    assert message.startswith(f"models.yaml:{said}"), message
    assert not OF_PYDANTIC.search(message)
