"""architecture: published configs, counted as their model cards count."""

from __future__ import annotations

import pytest

from build_engines.errors import BuildError
from build_engines.gpu.architecture import Architecture
from tests.fixtures.published import PARAMETERS, config, shape


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_model_card(name):
    """Within one part in 500: norms and biases are left out; gpt-oss has a bias in each expert."""
    assert shape(name).parameters == pytest.approx(PARAMETERS[name], rel=0.002)


def test_windows_and_the_published_quantization_are_read():
    found = shape("gpt-oss-20b")
    assert (found.window, found.windowed_layers) == (128, 12)
    assert found.native_quantization == "mxfp4"
    assert shape("qwen2.5-7b").windowed_layers == 0  # it has a window, and does not use it


@pytest.mark.parametrize(
    ("quantization", "name"),
    [
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, "int4_awq"),
        ({"quant_method": "gptq"}, "gptq"),
        (None, None),
    ],
)
def test_model_optimizers_names_become_those_of_models_yaml(quantization, name):
    found = Architecture.read({**config("llama-3.1-8b"), "quantization_config": quantization})
    assert found.native_quantization == name


def test_a_multimodal_models_text_part_is_taken():
    assert Architecture.read({"text_config": config("mistral-7b-v0.3")}).heads == 32


def test_another_kind_of_attention_is_refused_by_name():
    with pytest.raises(BuildError, match="deepseek_v3: latent attention"):
        Architecture.read({"model_type": "deepseek_v3", "kv_lora_rank": 512})


def test_a_missing_size_is_named():
    with pytest.raises(BuildError, match="does not state the model's shape: KeyError"):
        Architecture.read({"model_type": "llama"})
