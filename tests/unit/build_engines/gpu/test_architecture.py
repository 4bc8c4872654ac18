"""architecture: published configs, counted as their model cards count."""

from __future__ import annotations

import pytest

from build_engines.gpu.architecture import Architecture
from tests.fixtures.published import (
    LATENT_PARAMETERS,
    MODEL_OPTIMIZER_FP8,
    PARAMETERS,
    config,
    shape,
)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_model_card(name):
    """Within one part in 500: norms and biases are left out; gpt-oss has a bias in each expert."""
    assert shape(name).parameters == pytest.approx(PARAMETERS[name], rel=0.002)


@pytest.mark.parametrize("name", LATENT_PARAMETERS)
def test_parameters_of_latent_attention_are_those_of_the_model_card(name):
    assert shape(name).parameters == pytest.approx(LATENT_PARAMETERS[name], rel=0.01)


def test_layers_for_multi_token_prediction_are_counted_apart():
    """The hub counts 685B: the files have the embedding and the output layer a second time."""
    found = shape("deepseek-v3")
    drafting = sum(found.mtp_parameters)
    assert drafting == pytest.approx(11.6e9, rel=0.01)
    assert found.parameters + drafting + found.table_parameters == pytest.approx(685e9, rel=0.002)
    assert shape("kimi-k2").mtp_layers == 0


@pytest.mark.parametrize(
    ("more", "dense"),
    [
        ({"first_k_dense_replace": 3}, 3),
        ({"first_k_dense_replace": 0, "moe_layer_freq": 2}, 30),
        ({"first_k_dense_replace": 3, "moe_layer_freq": 2}, 32),
        ({"mlp_only_layers": [0, 7]}, 2),
        ({"num_hidden_layers": 10**15}, 3),  # no loop over what a stranger's file says
    ],
)
def test_the_layers_without_experts_are_counted(more, dense):
    """As DeepseekV3DecoderLayer in upstream's modeling_deepseekv3.py chooses."""
    found = shape("deepseek-v3", **more)
    assert found.layers - found.expert_layers == dense


def test_windows_and_the_published_quantization_are_read():
    found = shape("gpt-oss-20b")
    assert (found.window, found.windowed_layers) == (128, 12)
    assert found.native_quantization == "mxfp4"
    assert shape("qwen2.5-7b").windowed_layers == 0  # it has a window, and does not use it


@pytest.mark.parametrize(
    ("quantization", "name", "kept_in"),
    [
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, "int4_awq", "modelopt"),
        ({"quant_method": "gptq"}, "gptq", "gptq"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", "fp8"),
        ({"quant_method": "fp8"}, "fp8", "fp8 without weight_block_size"),
        (None, None, None),
    ],
)
def test_model_optimizers_names_become_those_of_models_yaml(quantization, name, kept_in):
    found = shape("llama-3.1-8b", quantization_config=quantization)
    assert (found.native_quantization, found.quantized_in) == (name, kept_in)


def test_model_optimizers_file_comes_before_config_json():
    """As load_modelopt_quant_config in upstream's _torch/model_config.py does."""
    found = shape(
        "llama-3.1-8b",
        **{"hf_quant_config.json": MODEL_OPTIMIZER_FP8},
        quantization_config={"quant_method": "compressed-tensors"},
    )
    assert (found.native_quantization, found.native_kv_cache) == ("fp8", "fp8")
    assert found.quantized_in == "hf_quant_config.json"


@pytest.mark.parametrize(
    ("said", "kv_cache"),
    [
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"kv_cache_quant_algo": None}, None),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, "fp8"),
        ({"kv_cache_scheme": None}, None),
    ],
)
def test_the_type_of_the_kv_cache_is_read(said, kv_cache):
    found = shape("llama-3.1-8b", quantization_config={"quant_method": "modelopt", **said})
    assert found.native_kv_cache == kv_cache


@pytest.mark.parametrize(
    ("kept", "only_experts"),
    [
        ({"exclude_modules": ["lm_head", "model.layers.0.self_attn*"]}, True),
        ({"ignore": ["re:.*self_attn.*", "lm_head"]}, True),
        ({"exclude_modules": ["lm_head"]}, False),
    ],
)
def test_a_mixture_may_be_quantized_in_its_experts_only(kept, only_experts):
    found = shape("deepseek-v3", quantization_config={"quant_algo": "NVFP4", **kept})
    assert found.only_experts is only_experts


def test_a_multimodal_models_text_part_is_taken():
    assert Architecture.read({"text_config": config("mistral-7b-v0.3")}).heads == 32
