"""config.json of the model in a GGUF file, from the metadata that llama.cpp's converter wrote."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from build_engines.errors import BuildError
from build_engines.gguf_file import GgufFile

# Keys of other models under the name of an architecture: their graphs compute something else.
UNSUPPORTED_KEYS = (
    "attention.clamp_kqv", "attention.scale", "embedding_scale", "expert_count", "logit_scale",
    "residual_scale", "rope.scale_linear",
)  # fmt: skip
# Llama 3's scaling of rotary frequencies: the file has its result only, as rope_freqs.weight.
LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_TRAINED = 1.0, 4.0, 8192
TOKEN_IDS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
GEMMA2_27B_LAYERS = 46


def config(file: GgufFile) -> dict[str, Any]:
    """
    Raises:
        BuildError: the metadata describe a model that transformers' class does not compute.
    """
    family = file.family
    for key in UNSUPPORTED_KEYS:
        if value := file.own(key):
            raise BuildError(
                f"{file.path} has {file.architecture}.{key} = {value!r}, and no {family.model} has"
            )
    heads, head_dim = file.number("attention.head_count"), file.head_dim
    if head_dim < 2 or head_dim % 2:  # halves are rotated
        raise BuildError(f"{file.path} has heads of {head_dim} numbers, and even ones are needed")
    if (layers := file.number("block_count")) > len(file.tensors):
        raise BuildError(
            f"{file.path} has {file.architecture}.block_count = {layers}, and only "
            f"{len(file.tensors)} tensors"
        )
    if (width := file.own("attention.value_length", head_dim)) != head_dim:
        raise BuildError(f"{file.path} has keys of {head_dim} numbers and values of {width}")
    ids = {name: file.get(f"tokenizer.ggml.{key}_token_id") for name, key in TOKEN_IDS.items()}
    if "token_embd.weight" not in file.tensors:
        raise BuildError(f"{file.path} has no token_embd.weight: it is not a whole model")
    vocab_size = file.tensors["token_embd.weight"].shape[0]
    if (tokens := len(file.get("tokenizer.ggml.tokens", ()))) > vocab_size:
        raise BuildError(f"{file.path} has {tokens} tokens, and embeddings of {vocab_size}")
    return {
        "model_type": file.architecture,
        "architectures": [family.model],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "hidden_size": file.number("embedding_length"),
        "intermediate_size": file.number("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": file.number("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": file.number("context_length"),
        "rms_norm_eps": file.own("attention.layer_norm_rms_epsilon", 1e-6),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "rope_parameters": _rope(file),
        **ids,
        **OWN.get(file.architecture, _nothing)(file),
    }


def _rope(file: GgufFile) -> dict[str, Any]:
    theta = {"rope_theta": file.own("rope.freq_base", 10_000.0)}
    rotary = int(file.own("rope.dimension_count", file.head_dim))
    if rotary != file.head_dim:
        if file.architecture != "phi3" or rotary > file.head_dim:
            raise BuildError(
                f"{file.path} rotates {rotary} of the {file.head_dim} numbers of a head, "
                f"and {file.family.model} all"
            )
        theta["partial_rotary_factor"] = rotary / file.head_dim
    if "rope_factors_long.weight" in file.tensors:
        return {**theta, **_long_rope(file, rotary)}
    if "rope_freqs.weight" in file.tensors:
        return {**theta, **_llama3_rope(file, theta["rope_theta"])}
    kind = file.own("rope.scaling.type", "none")
    if kind == "none":
        return {**theta, "rope_type": "default"}
    if kind == "linear":
        return {**theta, "rope_type": kind, "factor": file.own("rope.scaling.factor", 1.0)}
    # onnxruntime-genai's builder reads YaRN, and its graph computes something else
    raise BuildError(
        f"{file.path} scales rotary frequencies by {kind!r}, and only 'linear' is supported"
    )


def _long_rope(file: GgufFile, rotary: int) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "type": "longrope",  # onnxruntime-genai's builder reads it under the old name
        "long_factor": _factors(file, "rope_factors_long.weight", rotary),
        "short_factor": _factors(file, "rope_factors_short.weight", rotary),
        "original_max_position_embeddings": file.number("rope.scaling.original_context_length"),
    }


def _factors(file: GgufFile, name: str, rotary: int) -> list[float]:
    return [float(str(value)) for value in _frequencies(file, name, rotary)]


def _frequencies(file: GgufFile, name: str, rotary: int) -> npt.NDArray[np.float32]:
    shape = None if (tensor := file.tensors.get(name)) is None else tensor.shape
    if shape != (wanted := (rotary // 2,)):
        raise BuildError(f"{file.path}: {name} has the shape {shape}, and {wanted} is needed")
    return file.floats(name)


def _llama3_rope(file: GgufFile, theta: float) -> dict[str, Any]:
    """Llama 3's scaling, whose factor is the largest in the file."""
    found = _frequencies(file, "rope_freqs.weight", file.head_dim)
    factor = float(found.max())
    if factor == 1.0:
        return {"rope_type": "default"}
    inverse = 1 / theta ** (np.arange(0, file.head_dim, 2) / file.head_dim)
    turns = LLAMA3_TRAINED * inverse / (2 * math.pi)
    smooth = np.clip((turns - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW), 0, 1)
    if not np.allclose(found, 1 / ((1 - smooth) / factor + smooth), rtol=1e-3):
        raise BuildError(f"{file.path} has rope_freqs.weight that are not Llama 3's")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LLAMA3_LOW,
        "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_TRAINED,
    }


def _llama_config(file: GgufFile) -> dict[str, Any]:
    return {
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in file.tensors,
    }


def _phi3_config(file: GgufFile) -> dict[str, Any]:
    """sliding_window is 0 in the file of a model without one."""
    scaled = "rope_factors_long.weight" in file.tensors
    length = file.number("rope.scaling.original_context_length" if scaled else "context_length")
    window = file.own("attention.sliding_window", 0) or None
    return {"original_max_position_embeddings": length, "sliding_window": window}


def _gemma_config(_: GgufFile) -> dict[str, Any]:
    return {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}


def _gemma2_config(file: GgufFile) -> dict[str, Any]:
    """The file does not say by what queries are scaled: llama.cpp knows the 27B by its layers."""
    width, heads = file.number("embedding_length"), file.number("attention.head_count")
    is_27b = file.number("block_count") == GEMMA2_27B_LAYERS
    return {
        **_gemma_config(file),
        "query_pre_attn_scalar": width // heads if is_27b else file.head_dim,
        "sliding_window": file.own("attention.sliding_window", 4096),
        "attn_logit_softcapping": file.own("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": file.own("final_logit_softcapping", 30.0),
    }


def _nothing(_: GgufFile) -> dict[str, Any]:
    return {}


OWN: dict[str, Callable[[GgufFile], dict[str, Any]]] = {
    "llama": _llama_config,
    "phi3": _phi3_config,
    "gemma": _gemma_config,
    "gemma2": _gemma2_config,
}
