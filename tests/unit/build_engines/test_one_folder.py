"""one_folder: what a user would call the model, and folders that cannot be served."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from build_engines.errors import BuildError, UnservableFolder
from build_engines.fetch import step
from build_engines.gpu.architecture import Architecture
from build_engines.one_folder import models_of, public_name, size_name
from build_engines.weights import LocalFolder
from tests.fixtures.gguf_files import write

LLAMA_3_2_1B = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 16,
    "head_dim": 64,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}


def folder(path: Path, kind: str, filename: str | None = None, **config) -> Path:
    """An ONNX folder where it has a file name, else a Hugging Face folder."""
    path.mkdir(parents=True)
    if filename is not None:
        genai = {"model": {"type": kind, "decoder": {"filename": filename}}}
        (path / "genai_config.json").write_text(json.dumps(genai))
    if filename is None or config:
        (path / "config.json").write_text(json.dumps({**config, "model_type": kind}))
    return path


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        ("Phi-3.5-mini-instruct-onnx/cpu_and_mobile/cpu-int4", "phi3", "phi-3.5-mini"),
        ("Phi-3-mini-4k-instruct-onnx/cpu", "phi3", "phi-3-mini"),
        ("Phi-3-medium-128k-instruct", "phi3", "phi-3-medium"),
        ("Phi-4-mini-instruct", "phi3", "phi-4-mini"),
        ("Meta-Llama-3-8B-Instruct", "llama", "llama-3-8b"),
        ("models--meta-llama--Llama-3.2-1B/snapshots/0ab", "llama", "llama-3.2-1b"),
        ("Qwen2.5-0.5B-Instruct", "qwen2", "qwen2.5-0.5b"),
        ("Qwen3-0.6B", "qwen3", "qwen3-0.6b"),
        ("Mistral-7B-Instruct-v0.3", "mistral", "mistral-7b"),
        ("gemma-2-2b-it", "gemma2", "gemma-2-2b"),
    ],
)
def test_a_published_folder_says_its_name_in_its_path(tmp_path, path, kind, name):
    assert public_name(folder(tmp_path / path, kind, "model.onnx")) == name


def test_the_graphs_name_and_the_config_say_it_where_the_path_does_not(tmp_path):
    graph = "phi3-mini-4k-instruct-cpu-int4-rtn-block-32-acc-level-4.onnx"
    assert public_name(folder(tmp_path / "a", "phi3", graph)) == "phi-3-mini"
    config = {"_name_or_path": "microsoft/Phi-3.5-mini-instruct"}
    assert public_name(folder(tmp_path / "b", "phi3", "model.onnx", **config)) == "phi-3.5-mini"


def test_a_name_of_another_family_does_not_count(tmp_path):
    made = folder(tmp_path / "phi-3-mini-rivals", **{**LLAMA_3_2_1B, "kind": "llama"})
    assert public_name(made) == "llama-1.2b"


def test_an_unknown_model_is_architecture_and_size():
    parameters = Architecture.read(LLAMA_3_2_1B).parameters
    assert parameters == pytest.approx(1_235_814_400, rel=0.001)
    shipped = Path(__file__).parents[3] / "demo_model" / "shipped"
    assert public_name(shipped) == "llama-4.9m"


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (139_584, "0.1m"),
        (3_500_000, "3.5m"),
        (134_515_008, "135m"),
        (494_032_768, "0.5b"),
        (3_821_079_552, "3.8b"),
        (8_030_261_248, "8b"),
        (70_553_706_496, "70.6b"),
    ],
)
def test_sizes_are_written_as_models_are_called(parameters, name):
    assert size_name(parameters) == name


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "is not a JSON object"),
        ("{}", "does not say which model"),
        ('{"model_type": "llama"}', "does not state the model's shape"),
    ],
)
def test_a_config_that_does_not_say_is_refused(tmp_path, config, said):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(BuildError, match=rf"config\.json {said}"):
        public_name(tmp_path)


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_a_folder_that_this_user_may_not_read_is_refused(tmp_path, mode):
    (tmp_path / "config.json").write_text("{}")
    tmp_path.chmod(mode)
    user = os.getuid()
    if user == 0:  # may read all
        os.setreuid(65534, -1)
    try:
        with pytest.raises(UnservableFolder, match="it cannot be read: Permission denied"):
            models_of(tmp_path, None)
    finally:
        os.setreuid(user, -1)
        tmp_path.chmod(0o700)


def test_a_given_name_needs_no_config_that_says_it(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    ((name, entry),) = models_of(tmp_path, "mine").models.items()
    assert (name, str(entry.weights)) == ("mine", str(tmp_path))
    assert entry.sampling.temperature is None


@pytest.mark.parametrize("name", ["model.gguf", "sha256-of-ollama", "folder"])
def test_gguf_is_for_runtime_onnx_and_whole(tmp_path, name):
    given = tmp_path / name
    if name == "folder":
        given.mkdir()
    file = given / "qwen-q4.gguf" if name == "folder" else given
    file.write_bytes(b"GGUF\3\0\0\0")
    with pytest.raises(UnservableFolder, match=r"is cut off: it has 8 bytes\. Fetch"):
        models_of(given, None)
    with pytest.raises(BuildError, match=r"GGUF.*llama\.cpp.*Give the Hugging Face folder"):
        step(LocalFolder(given), tmp_path)


@pytest.mark.parametrize(
    ("said", "name"),
    [({"general.name": "Llama 3.2 1B Instruct"}, "llama-3.2-1b"), ({}, "llama-0.2m")],
)
def test_a_gguf_file_says_its_name_or_gets_one(tmp_path, said, name):
    path = write(tmp_path / "model.gguf", "llama", values=said).path
    for given in (path, tmp_path):
        ((found, entry),) = models_of(given, None).models.items()
        assert (found, entry.weights) == (name, LocalFolder(given))


def test_a_single_file_is_named_as_such(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    with pytest.raises(UnservableFolder, match="it is a file: give the folder"):
        models_of(tmp_path / "model.safetensors", None)


def test_a_folder_of_variants_names_them(tmp_path):
    variant = folder(tmp_path / "cpu_and_mobile" / "int4", "phi3", "model.onnx")
    with pytest.raises(UnservableFolder, match=f"take one of {variant}"):
        models_of(tmp_path, None)
    with pytest.raises(UnservableFolder, match="does not exist"):
        models_of(tmp_path / "nowhere", None)
