"""`triton-openai adopt --write`: entries are added to a models file, which stays valid."""

from __future__ import annotations

import pytest

from build_engines import models_file
from proxy.domain.errors import LaunchError
from proxy.operate.adopt import written

ENTRY = "qwen:\n  adopt: qwen_vllm\n  context_length: 4096\n"


def test_a_new_file(tmp_path):
    file = tmp_path / "models.yaml"
    written(ENTRY, file)
    assert models_file.load(file).models["qwen"].adopt == "qwen_vllm"


def test_what_stands_in_the_file_stays(tmp_path):
    file = tmp_path / "models.yaml"
    before = (
        "# ours\nmodels:\n  # a comment\n  other:\n    deployments: [{name: a, pool: default}]\n"
    )
    file.write_text(before)
    written(ENTRY, file)
    assert list(models_file.load(file).models) == ["qwen", "other"]
    assert "# a comment" in file.read_text()
    assert file.read_text().startswith("# ours\n")


@pytest.mark.parametrize(
    "before",
    ["models:\n  qwen: {adopt: x}\n", "models: {a: {adopt: x}}\n", "models:\n  a: {unknown: 1}\n"],
)
def test_a_file_that_would_be_wrong_stays_as_it_was(tmp_path, before):
    file = tmp_path / "models.yaml"
    file.write_text(before)
    with pytest.raises(LaunchError):
        written(ENTRY, file)
    assert file.read_text() == before
    assert list(tmp_path.iterdir()) == [file]
