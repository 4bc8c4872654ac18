"""legacy.verify: what upstream's tools may leave that is not what was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from build_engines.errors import BuildError
from build_engines.gpu.legacy import verify
from build_engines.gpu.options import GpuOptions

TWO = GpuOptions(tensor_parallel=2, max_batch_size=8, max_num_tokens=512)
MAPPING = {"tp_size": 2, "pp_size": 1}
BUILT = {"max_seq_len": 64, "max_batch_size": 8, "max_num_tokens": 512}
PLAN = {"version": "1.2.1", "pretrained_config": {"mapping": MAPPING}, "build_config": BUILT}


def folder(path: Path, config: dict, *names: str) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    for name in names:
        (path / name).write_text("x")
    return path


def check_plan(path: Path) -> None:
    verify.plan(path, TWO, version=Version("1.2.1"), max_seq_len=64)


def test_a_plan_as_it_was_asked_for_passes(tmp_path):
    check_plan(folder(tmp_path, PLAN, "rank0.engine", "rank1.engine"))


@pytest.mark.parametrize(
    ("given", "built"),
    [
        # A step never holds more than all requests at their longest.
        ({"max_batch_size": 2}, {"max_batch_size": 2, "max_num_tokens": 128}),
        ({"max_batch_size": 8, "max_num_tokens": 16}, {"max_num_tokens": 32}),
        # Drafts come on top, and must fit into a step.
        (
            {"max_num_tokens": 64, "speculative": {"method": "lookahead"}},  # 15 of them
            {"max_seq_len": 79, "max_num_tokens": 8 * 16},
        ),
    ],
)
def test_lengths_that_trtllm_build_adjusts_pass_as_it_adjusts_them(tmp_path, given, built):
    options = GpuOptions.model_validate(
        {"tensor_parallel": 2, "max_batch_size": 8, "max_num_tokens": 512, **given}
    )
    plan = {**PLAN, "build_config": {**BUILT, **built}}
    folder(tmp_path, plan, "rank0.engine", "rank1.engine")
    verify.plan(tmp_path, options, version=Version("1.2.1"), max_seq_len=64)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "1.1.0"}, r"built by TensorRT-LLM 1\.1\.0, not 1\.2\.1"),
        (
            {"pretrained_config": {"mapping": {**MAPPING, "tp_size": 4}}},
            "made for tp_size 4, not 2",
        ),
        ({"pretrained_config": {}}, "made for tp_size None, not 2"),
        ({"build_config": {**BUILT, "max_seq_len": 32}}, "built with max_seq_len 32, not 64"),
        ({"build_config": {**BUILT, "max_batch_size": 2048}}, "max_batch_size 2048, not 8"),
    ],
)
def test_a_plan_of_something_else_is_refused(tmp_path, changed, said):
    with pytest.raises(BuildError, match=said):
        check_plan(folder(tmp_path, {**PLAN, **changed}, "rank0.engine", "rank1.engine"))


def test_a_rank_that_is_missing_or_empty_is_named(tmp_path):
    with pytest.raises(BuildError, match=r"rank1\.engine is missing"):
        check_plan(folder(tmp_path, PLAN, "rank0.engine"))
    (tmp_path / "rank1.engine").touch()
    with pytest.raises(BuildError, match=r"rank1\.engine is empty"):
        check_plan(tmp_path)
