"""`triton-openai adopt --write`: entries are added to a models file, which stays valid."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from build_engines import models_file
from proxy.domain.errors import LaunchError
from proxy.domain.model import Adopted, Kind, LoadedModel
from proxy.operate import adopt
from proxy.operate.adopt import written
from proxy.settings import Settings
from proxy.triton.dialects.recognition import Found
from tests.doubles.engine import FACTS

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


@pytest.mark.parametrize(
    ("kind", "inputs", "comment"),
    [
        (Kind.TEXT, {"PROMPT": "BYTES"}, ""),
        (
            Kind.TEXT,
            {"PROMPT": "BYTES", "MAX_LEN": "INT32", "bad\nname: x": "FP32"},
            "# 'legacy' also has the inputs 'MAX_LEN', 'bad\\nname: x': callers set those",
        ),
        (Kind.VLLM, {"text_input": "BYTES", "stream": "BOOL"}, ""),
    ],
)
def test_inputs_that_an_entry_does_not_map_are_named(monkeypatch, tmp_path, kind, inputs, comment):
    adopted = Adopted(
        kind=kind,
        inputs=inputs,
        outputs={"TEXT": "BYTES"},
        has_batches=False,
        is_decoupled=True,
    )
    model = LoadedModel(name="legacy", facts=replace(FACTS, adopted=adopted))
    monkeypatch.setattr(adopt, "ask", lambda settings: [Found(model=model, notes=())])
    found = adopt.entries(Settings(), None, None)
    assert ("#" in found) is bool(comment)
    assert comment in found
    written(found, tmp_path / "models.yaml")
    assert list(models_file.load(tmp_path / "models.yaml").models) == ["legacy"]


@pytest.mark.parametrize(("template", "is_said"), [(None, False), ('{"version": 2}', True)])
def test_doctor_says_why_a_response_template_is_not_in_use(monkeypatch, template, is_said):
    model = LoadedModel(name="m", facts=replace(FACTS, response_template=template))
    monkeypatch.setattr(adopt, "ask", lambda settings: [Found(model=model, notes=())])
    (check,) = adopt.checks(Settings())
    assert ("its response template is not in use: version: " in check.detail) == is_said


@pytest.mark.parametrize(
    ("kind", "inputs", "sees", "said"),
    [
        (Kind.VLLM, {"image": "BYTES"}, True, "yes, if the model reads them"),
        (Kind.VLLM, {}, False, "no: this version of the backend has no input `image`"),
        (Kind.LLMAPI, {"image_url": "BYTES"}, False, "`multimodal` in its model.yaml"),
        (Kind.LLMAPI, {}, False, "no: this version has no input `image_url`"),
        (Kind.CPP, {}, False, "no: the ensemble takes a text"),
        (Kind.TEXT, {}, False, "no: a mapping names one text"),
        (None, {}, False, "no: its engine reads none"),
        (None, {}, True, "yes, if the model reads them"),
    ],
)
def test_doctor_says_what_a_model_does_with_images_and_why_not(
    monkeypatch, kind, inputs, sees, said
):
    adopted = kind and Adopted(
        kind=kind, inputs=inputs, outputs={}, has_batches=False, is_decoupled=True
    )
    model = LoadedModel(
        name="m",
        facts=replace(FACTS, adopted=adopted),
        capabilities=frozenset({"images"} if sees else ()),
    )
    monkeypatch.setattr(adopt, "ask", lambda settings: [Found(model=model, notes=())])
    (check,) = adopt.checks(Settings())
    assert re.search(f"images: .*{re.escape(said)}", check.detail)
