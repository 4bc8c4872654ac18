"""Embedding models of models.yaml: what their files say, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from build_engines import embedding_build, models_file
from build_engines.errors import BuildError
from build_engines.models_file import EmbeddingEntry, ModelsFileError
from build_engines.weights import InstalledPackage, LocalFolder, parse
from tests.fixtures.embedding_models import safetensors, static

CONFIG = {"vocab_size": 24, "max_position_embeddings": 512, "hidden_size": 16}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a graph whose tensors are `tensors`."""
    made = tmp_path / "weights"
    static(made)
    (made / "model.safetensors").unlink()
    (made / "model.onnx").write_bytes(b"graph")
    (made / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setattr(embedding_build, "in_child", lambda *_: tensors())
    return made


def tensors(**outputs: list[object]) -> tuple[list[str], dict[str, list[object]]]:
    return ["input_ids", "attention_mask"], outputs or {"last_hidden_state": ["n", "t", 16]}


def facts(folder: Path, context_length: int | None = None, **options: object) -> dict[str, str]:
    weights, name = LocalFolder(folder), "embedding"
    entry = EmbeddingEntry(
        runtime=name, weights=weights, context_length=context_length, embedding=options
    )
    target = folder.parent / "artifacts"
    target.mkdir(exist_ok=True)
    embedding_build.build("m", entry, target, lambda line: None)
    assert embedding_build.is_built("m", entry, target)
    return embedding_build.parameters("m", target)


def modules(folder: Path, *kinds: str) -> None:
    given = [{"type": f"sentence_transformers.models.{kind}", "path": kind} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(given))
    (folder / "Pooling").mkdir(exist_ok=True)


def pooling(folder: Path, **fields: object) -> None:
    (folder / "Pooling" / "config.json").write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("given", "kinds", "options", "found"),
    [
        ({"pooling_mode_mean_tokens": True}, ["Normalize"], {}, ("mean", "1")),
        ({"pooling_mode_cls_token": True}, [], {}, ("cls", "0")),
        ({"pooling_mode": "mean"}, [], {"normalize": True}, ("mean", "1")),
        ({"pooling_mode_mean_tokens": True}, ["Normalize"], {"pooling": "cls"}, ("cls", "1")),
    ],
)
def test_pooling_is_read_from_sentence_transformers_files(folder, given, kinds, options, found):
    modules(folder, "Transformer", "Pooling", *kinds)
    pooling(folder, **given)
    said = facts(folder, **options)
    assert (said["pooling"], said["normalize"]) == found
    assert (said["task"], said["width"], said["output"]) == ("embed", "16", "last_hidden_state")


@pytest.mark.parametrize(
    ("given", "kinds", "words"),
    [
        ({"pooling_mode_max_tokens": True}, ["Pooling"], "must be mean or cls"),
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            ["Pooling"],
            "must be mean or cls",
        ),
        ({}, ["Pooling", "Dense"], "has a Dense, which is not served"),
    ],
)
def test_what_is_not_served_of_them_is_refused(folder, given, kinds, words):
    modules(folder, "Transformer", *kinds)
    pooling(folder, **{"pooling_mode_mean_tokens": True, **given} if "Dense" in kinds else given)
    with pytest.raises(BuildError, match=words):
        facts(folder)


def test_without_these_files_models_yaml_says_it(folder):
    with pytest.raises(BuildError, match=r"set embedding\.pooling to mean or cls"):
        facts(folder)
    assert facts(folder, pooling="mean")["normalize"] == "1"


@pytest.mark.parametrize(
    ("config", "files", "length"),
    [
        ({}, {}, 512),
        ({}, {"sentence_bert_config.json": {"max_seq_length": 256}}, 256),
        ({}, {"tokenizer_config.json": {"model_max_length": 128}}, 128),
        ({}, {"tokenizer_config.json": {"model_max_length": 10**30}}, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514}, {}, 512),
    ],
)
def test_the_context_is_the_shortest_that_a_file_names(folder, config, files, length):
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    for name, fields in files.items():
        (folder / name).write_text(json.dumps(fields))
    assert facts(folder, pooling="mean")["context_length"] == str(length)
    assert facts(folder, 16, pooling="mean")["context_length"] == "16"
    with pytest.raises(BuildError, match=f"context_length is 600: the model has {length}"):
        facts(folder, 600, pooling="mean")


@pytest.mark.parametrize(
    ("config", "activation"),
    [
        ({}, "sigmoid"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "none"),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}},
            "sigmoid",
        ),
    ],
)
def test_a_cross_encoders_activation_is_the_references(folder, monkeypatch, config, activation):
    cross_encoder(folder, monkeypatch, **config)
    found = facts(folder)
    assert (found["task"], found["activation"], found["pooling"]) == ("score", activation, "none")


def cross_encoder(folder, monkeypatch, labels: int = 1, **config: object) -> None:
    fields = {**CONFIG, "architectures": ["BertForSequenceClassification"], **config}
    (folder / "config.json").write_text(json.dumps(fields))
    monkeypatch.setattr(embedding_build, "in_child", lambda *_: tensors(logits=["n", labels]))


def test_a_classifier_and_an_unknown_activation_are_refused(folder, monkeypatch):
    cross_encoder(folder, monkeypatch, labels=3)
    with pytest.raises(BuildError, match="several labels"):
        facts(folder)
    cross_encoder(folder, monkeypatch, sbert_ce_default_activation_function="torch.nn.Tanh")
    with pytest.raises(BuildError, match=r"'torch.nn.Tanh'"):
        facts(folder)


def test_dynamic_quantization_makes_each_text_run_alone(folder):
    assert facts(folder, pooling="mean")["runs_alone"] == "0"
    (folder / "model.onnx").write_bytes(b"a DynamicQuantizeLinear node")
    assert facts(folder, pooling="mean")["runs_alone"] == "1"


def test_dimensions_are_those_of_models_yaml(folder):
    assert facts(folder, pooling="mean", dimensions=[8, 4])["dimensions"] == "4,8"
    with pytest.raises(BuildError, match="up to 17: the model has 16"):
        facts(folder, pooling="mean", dimensions=[17])


def test_a_graph_with_an_input_of_another_kind_is_refused(folder, monkeypatch):
    monkeypatch.setattr(embedding_build, "in_child", lambda *_: (["pixels"], {"x": [1, 2, 3]}))
    with pytest.raises(BuildError, match="'pixels'"):
        facts(folder, pooling="mean")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    static(tmp_path / "weights")
    return tmp_path / "weights"


def test_a_static_model_needs_no_options(table):
    found = facts(table)
    assert (found["table_dtype"], found["normalize"], found["unknown_id"]) == ("float16", "1", "1")
    assert int(found["context_length"]) == embedding_build.STATIC_CONTEXT
    assert facts(table, 100_000, normalize=False)["context_length"] == "100000"


@pytest.mark.parametrize(
    "arrays",
    [
        {"embeddings": np.zeros((24, 4), "float32"), "weights": np.zeros(24, "float32")},
        {"embeddings": np.zeros(24, "float32")},
        {"embeddings": np.zeros((24, 4), "int64")},
        {},
    ],
)
def test_other_tables_are_refused(table, arrays):
    safetensors(table / "model.safetensors", arrays)
    with pytest.raises(BuildError, match="is not the table of a static model"):
        facts(table)


def test_a_table_that_is_too_small_for_its_tokenizer_is_refused(table):
    safetensors(table / "model.safetensors", {"embeddings": np.zeros((3, 4), "float32")})
    with pytest.raises(BuildError, match="has 3 vectors, and the tokenizer"):
        facts(table)


def test_a_changed_file_and_a_changed_option_make_it_stale(table, tmp_path):
    entry = EmbeddingEntry(runtime="embedding", weights=LocalFolder(table))
    embedding_build.build("m", entry, tmp_path, lambda line: None)
    other = entry.model_copy(update={"context_length": 8})
    assert not embedding_build.is_built("m", other, tmp_path)
    (table / "config.json").write_text("{}")
    assert not embedding_build.is_built("m", entry, tmp_path)


def test_a_package_that_is_not_installed_is_named(tmp_path):
    found = parse("package://no_such_thing", tmp_path)
    assert found == InstalledPackage("no_such_thing")
    entry = EmbeddingEntry(runtime="embedding", weights=found)
    with pytest.raises(BuildError, match=r"'no_such_thing' .* is not installed"):
        embedding_build.is_built("m", entry, tmp_path)
    with pytest.raises(ValueError, match="not the name of a Python package"):
        parse("package://a/b", tmp_path)
    assert InstalledPackage("numpy").path == Path(np.__file__).parent


@pytest.mark.parametrize(
    ("field", "value"), [("tool_parser", "none"), ("sampling", {"max_tokens": 3}), ("profile", 1)]
)
def test_fields_of_models_that_generate_are_refused_by_name(tmp_path, field, value):
    file = tmp_path / "models.yaml"
    entry = {"runtime": "embedding", "weights": "x", field: value}
    file.write_text(json.dumps({"models": {"m": entry}}))
    with pytest.raises(ModelsFileError, match=f"models.m.{field}"):
        models_file.load(file)
