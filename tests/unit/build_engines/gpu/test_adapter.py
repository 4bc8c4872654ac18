"""adapter: what one changes, and each reason for which TensorRT-LLM would fail or say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from build_engines.errors import BuildError
from build_engines.gpu import adapter
from build_engines.gpu.adapter import Adapter
from build_engines.gpu.options import GpuOptions
from tests.fixtures.adapters import write

LAYER = "base_model.model.model.layers.0"


def check(folders: list[Path], version: str = "1.2.1", max_rank: int = 64, **given: object) -> None:
    lora = {"adapters": {"a": "a"}, "max_rank": max_rank}
    options = GpuOptions.model_validate({**given, "lora": lora})
    adapter.check(folders, options, Version(version))


def test_it_is_read_from_its_weights(tmp_path):
    found = Adapter.read(write(tmp_path / "a", ("o_proj", "up_proj"), rank=16))
    assert (found.rank, found.modules) == (16, {"o_proj", "up_proj"})


def test_the_highest_rank_counts(tmp_path):
    assert Adapter.read(write(tmp_path / "a", rank_pattern={"v_proj": 32})).rank == 32


def test_modules_of_all_adapters_come_together_and_q_k_and_v_never_alone(tmp_path):
    folders = [write(tmp_path / "a", ("q_proj",)), write(tmp_path / "b", ("down_proj",))]
    assert adapter.modules(folders) == {
        "attn_q": "q_proj",
        "attn_k": "k_proj",
        "attn_v": "v_proj",
        "mlp_4h_to_h": "down_proj",
    }
    assert adapter.modules(folders[1:]) == {"mlp_4h_to_h": "down_proj"}
    assert adapter.modules([]) == {}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"peft_type": "IA3"},
            r"adapter_config\.json: .* adapters of peft_type 'IA3', only of LORA",
        ),
        ({"modules_to_save": ["lm_head"]}, r"that replace whole modules: modules_to_save"),
        ({"use_dora": True}, r"with magnitudes .*: use_dora"),
        ({"bias": "all"}, r"with biases: bias is 'all'"),
        ({"alpha_pattern": {"q_proj": 8}}, r"with a different alpha .*: alpha_pattern"),
        ({"r": None}, r"adapter_config\.json does not state the rank"),
    ],
)
def test_settings_that_would_be_left_out_in_silence_are_refused(tmp_path, config, said):
    folder = write(tmp_path / "a", **{"modules_to_save": None, "use_dora": False, **config})
    with pytest.raises(BuildError, match=said):
        Adapter.read(folder)


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.lm_head.lora_A.weight",
        f"{LAYER}.block_sparse_moe.experts.0.w1.lora_A.weight",
        f"{LAYER}.mlp.shared_expert.up_proj.lora_A.weight",
        f"{LAYER}.self_attn.q_proj.lora_embedding_A",
        f"{LAYER}.self_attn.rotary.lora_A.weight",
    ],
)
def test_a_tensor_that_has_no_place_is_named(tmp_path, name):
    with pytest.raises(BuildError) as error:
        Adapter.read(write(tmp_path / "a", tensors=(name,)))
    assert f"adapter_model.safetensors has {name}: " in str(error.value)


def test_weights_that_are_missing_broken_or_empty_are_refused(tmp_path):
    with pytest.raises(BuildError, match=r"has no tensor"):
        Adapter.read(write(tmp_path / "empty", ()))
    folder = write(tmp_path / "a")
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(BuildError, match=r"adapter_model\.safetensors cannot be read"):
        Adapter.read(folder)
    weights.unlink()
    with pytest.raises(BuildError, match=r"adapter_model\.safetensors cannot be read"):
        Adapter.read(folder)


def test_a_rank_over_the_limit_is_refused_with_the_field_to_raise(tmp_path):
    folders = [write(tmp_path / name, rank=16) for name in "ab"]
    check(folders, max_rank=16)
    with pytest.raises(
        BuildError, match=r"/a has rank 16: lora\.max_rank is 8, raise it; .*/b has"
    ):
        check(folders, max_rank=8)


def test_a_plan_takes_the_modules_of_the_first_adapter(tmp_path):
    small, large = write(tmp_path / "s"), write(tmp_path / "l", ("q_proj", "v_proj", "o_proj"))
    check([small, large])
    check([large, small], engine="plan")
    with pytest.raises(BuildError, match=r"/l changes o_proj, and .*/s does not"):
        check([small, large], engine="plan")


def test_fused_modules_are_not_split_by_a_version_that_does_it_wrongly(tmp_path):
    folders = [write(tmp_path / "a", ("qkv_proj", "gate_up_proj", "o_proj"))]
    check(folders, version="1.1.0")
    check(folders, tensor_parallel=2)
    with pytest.raises(BuildError, match=r"/a changes gate_up_proj, qkv_proj, and .* 1\.1\.0"):
        check(folders, version="1.1.0", tensor_parallel=2)
    check([write(tmp_path / "b")], version="1.1.0", tensor_parallel=2)
