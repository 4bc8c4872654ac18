"""What a change makes stale: the keys of a recipe's steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build_engines.gpu.device import Device
from build_engines.gpu.recipe import Recipe
from tests.fixtures.published import config
from tests.unit.build_engines.gpu.recipes import H100, make


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
