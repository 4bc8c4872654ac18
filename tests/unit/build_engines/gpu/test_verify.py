"""verify: weights that are not complete."""

from __future__ import annotations

import json

import pytest

from build_engines.errors import BuildError
from build_engines.gpu import verify


def test_weights_that_the_index_names_must_all_be_there(tmp_path):
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model-1.safetensors").write_text("x")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BuildError, match=r"model-2\.safetensors is missing"):
        verify.weights(tmp_path)


def test_a_folder_without_weights_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BuildError, match="has no weights: neither"):
        verify.weights(tmp_path)
