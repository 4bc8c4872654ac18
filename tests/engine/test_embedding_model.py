"""The Triton model `embedding` without Triton: tokens, vectors and scores, compared with theirs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from build_engines import embedding_build
from build_engines.models_file import EmbeddingEntry
from build_engines.weights import LocalFolder
from encoder import Encoder, Refusal, TokenSequence
from onnx_graph import OnnxGraph
from static_table import StaticTable
from tests.fixtures import embedding_models

TEXTS = ("where is the station", "milk", "bread and milk at noon a b c d e f g", "milk a")


def built(folder: Path, target: Path, **options: object) -> dict[str, str]:
    entry = EmbeddingEntry(runtime="embedding", weights=LocalFolder(folder), embedding=options)
    embedding_build.build("m", entry, target, lambda line: None)
    return json.loads((target / "m" / "parameters.json").read_text())


def encoder(folder: Path, parameters: dict[str, str]) -> Encoder:
    unknown = parameters.get("unknown_id")
    return Encoder(
        folder / "tokenizer.json",
        context_length=int(parameters["context_length"]),
        vocab_size=int(parameters["vocab_size"]),
        adds_special_tokens="table_shape" not in parameters,
        left_out=None if unknown is None else int(unknown),
    )


def graph(folder: Path, parameters: dict[str, str], **options: object) -> OnnxGraph:
    found = {"pooling": parameters["pooling"], "runs_alone": False, **options}
    return OnnxGraph(
        folder / "model.onnx", output=parameters["output"], pad_id=0, threads=1, **found
    )


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_vectors_are_those_of_transformers(embedding_folders, tmp_path):
    folder = embedding_folders / "bert"
    parameters = built(folder, tmp_path)
    encode = encoder(folder, parameters).of_text
    sequences = [encode(text, None, 0, None) for text in TEXTS]
    found = unit(graph(folder, parameters).vectors(sequences))
    expected = embedding_models.reference(folder, *TEXTS)
    assert np.abs(found - expected).max() < 1e-4
    assert np.abs(expected @ expected.T - np.eye(len(TEXTS))).max() > 0.01, "they differ"


@pytest.mark.parametrize("tokens_a_run", [12, 8_192])
def test_neighbours_and_padding_change_no_vector(
    embedding_folders, tmp_path, monkeypatch, tokens_a_run
):
    folder = embedding_folders / "bert"
    parameters = built(folder, tmp_path)
    encode = encoder(folder, parameters).of_text
    sequences = [encode(text, None, 0, None) for text in TEXTS]
    model = graph(folder, parameters)
    alone_each = np.concatenate([model.vectors([one]) for one in sequences])
    monkeypatch.setattr("onnx_graph.TOKENS_A_RUN", tokens_a_run)
    assert np.abs(model.vectors(sequences) - alone_each).max() < 1e-5
    runs_alone = graph(folder, parameters, runs_alone=True)
    assert (runs_alone.vectors(sequences) == alone_each).all()


def test_the_first_tokens_vector_is_another_pooling(embedding_folders, tmp_path):
    folder = embedding_folders / "bert"
    parameters = built(folder, tmp_path, pooling="cls", normalize=False)
    assert (parameters["pooling"], parameters["normalize"]) == ("cls", "0")
    sequence = encoder(folder, parameters).of_text("milk", None, 0, None)
    first = graph(folder, parameters).vectors([sequence])
    mean = graph(folder, parameters, pooling="mean").vectors([sequence])
    assert first.shape == mean.shape == (1, embedding_models.WIDTH)
    assert np.abs(first - mean).max() > 1e-3


def test_scores_are_those_of_transformers(embedding_folders, tmp_path):
    folder = embedding_folders / "cross"
    parameters = built(folder, tmp_path)
    assert (parameters["task"], parameters["activation"]) == ("score", "sigmoid")
    pairs = [("where is the station", "milk"), ("a b", "train leaves at noon"), ("a", "a")]
    encode = encoder(folder, parameters).of_text
    sequences = [encode(first, second, 0, None) for first, second in pairs]
    assert 1 in sequences[0].types
    logits = graph(folder, parameters).vectors(sequences)
    expected = embedding_models.reference(folder, *pairs)
    assert np.abs(1 / (1 + np.exp(-logits)) - expected).max() < 1e-4
    assert np.ptp(expected) > 1e-3


def test_a_static_model_takes_the_mean_of_the_known_tokens(embedding_folders, tmp_path):
    folder = embedding_folders / "static"
    parameters = built(folder, tmp_path)
    table = embedding_models.static(tmp_path / "again")
    rows, width = map(int, parameters["table_shape"].split(","))
    model = StaticTable(
        folder / "model.safetensors",
        dtype=parameters["table_dtype"],
        offset=int(parameters["table_offset"]),
        shape=(rows, width),
    )
    encode = encoder(folder, parameters)
    milk, unknown, both = (
        encode.known(encode.of_text(text, None, 0, None))
        for text in ("milk bread", "xyz", "milk xyz bread")
    )
    found = model.vectors([milk, unknown, both])
    assert np.abs(found[0] - table[list(milk.ids)].mean(axis=0)).max() < 1e-6
    assert not found[1].any()
    assert (found[2] == found[0]).all()


@pytest.mark.parametrize(
    ("text", "pair", "most", "words"),
    [
        ("a " * 30, None, None, None),
        ("a " * 31, None, None, "length is 32 tokens, and the text has 33."),
        ("a " * 20, "b " * 20, None, "the pair of texts has 43."),
        ("a " * 10, None, 12, None),
        ("a " * 10, None, 11, "accepts at most 11 tokens for this model, and the text has 12."),
        ("a " * 100_000, None, None, "length is 32 tokens, and a text has more."),
        ("a", "b " * 100_000, None, "a text has more."),
        ("\x00", None, None, None),
    ],
)
def test_a_text_that_is_too_long_is_refused_with_its_length(
    embedding_folders, text, pair, most, words
):
    given = {"context_length": "32", "vocab_size": "25"}
    encode = encoder(embedding_folders / "cross", given)
    if words is None:
        assert encode.of_text(text, pair, 0, most).ids
        return
    with pytest.raises(Refusal, match=words) as refused:
        encode.of_text(text, pair, 3, most)
    fields = json.loads(refused.value.as_json("r"))
    assert (fields["param"], fields["code"]) == ("prompt[3]", "context_length_exceeded")


def test_a_static_model_refuses_a_text_without_tokens(embedding_folders):
    encode = encoder(embedding_folders / "static", {**STATIC, "table_shape": "24,16"})
    with pytest.raises(Refusal, match="has no tokens"):
        encode.of_text("  ", None, 0, None)


STATIC = {"context_length": "32", "vocab_size": "24"}


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([5, 6, -1, -1], (5, 6)),
        ([5], (5,)),
        ([24], "token id 24 is outside the vocabulary of 24"),
        ([5, -1, 6], "token id -1"),
        ([-1, -1], "has no tokens"),
        ([5] * 33, "the text has 33"),
    ],
)
def test_ids_are_checked_and_lose_their_padding(embedding_folders, ids, found):
    encode = encoder(embedding_folders / "static", STATIC)
    if isinstance(found, tuple):
        assert encode.of_ids(ids, 0, None) == TokenSequence(found, (0,) * len(found))
        return
    with pytest.raises(Refusal, match=found):
        encode.of_ids(ids, 0, None)
