"""Writes a trained network as a Hugging Face folder. Called by the command `export`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from demo_model.training.chat import END, TEMPLATE, TEXT_END
from demo_model.training.network import Llama, Shape
from demo_model.training.recipe import Recipe
from demo_model.training.tokenizer import id_of, tokenizer_config
from demo_model.training.training import Run


def weights(network: Llama) -> dict[str, Tensor]:
    """The parameters with transformers' names, as float16."""
    shape = network.shape
    named: dict[str, Tensor] = {
        "model.embed_tokens.weight": network.embedding,
        "model.norm.weight": network.norm,
    }
    for index, layer in enumerate(network.blocks):
        at = f"model.layers.{index}."
        narrow = shape.kv_heads * shape.head_dim
        query, key, value = layer.qkv.tensor_split([shape.width, shape.width + narrow])
        gate, up = layer.gate_up.chunk(2)
        named |= {
            at + "input_layernorm.weight": layer.norm_in,
            at + "self_attn.q_proj.weight": query,
            at + "self_attn.k_proj.weight": key,
            at + "self_attn.v_proj.weight": value,
            at + "self_attn.o_proj.weight": layer.out,
            at + "post_attention_layernorm.weight": layer.norm_mlp,
            at + "mlp.gate_proj.weight": gate,
            at + "mlp.up_proj.weight": up,
            at + "mlp.down_proj.weight": layer.down,
        }
    return {name: tensor.detach().to(torch.float16).contiguous() for name, tensor in named.items()}


def config(shape: Shape, ends: list[int], pad: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.positions,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_eps,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": pad,
        "eos_token_id": ends,
        "pad_token_id": pad,
    }


def export(run: Run, recipe: Recipe, folder: Path) -> None:
    """Writes the files of a Hugging Face folder, and leaves the folder's other files alone.

    Raises:
        FileNotFoundError: the run has no checkpoint.
    """
    saved = run.checkpoint()
    if saved is None:
        raise FileNotFoundError(f"no checkpoint in {run.folder}: train first")
    shape = recipe.shape_at(saved["step"])
    network = Llama(shape)
    network.load_state_dict(saved["network"])
    tokenizer = Tokenizer.from_file(str(run.tokenizer_file))
    end, pad = id_of(tokenizer, END), id_of(tokenizer, TEXT_END)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights(network), folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(run.tokenizer_file, folder / "tokenizer.json")
    shutil.copyfile(TEMPLATE, folder / "chat_template.jinja")
    (folder / "tokenizer_config.json").write_text(tokenizer_config(TEMPLATE.read_text()))
    dump(folder / "config.json", config(shape, [end, pad], pad))
    dump(
        folder / "generation_config.json",
        {"eos_token_id": [end, pad], "pad_token_id": pad, "bos_token_id": pad},
    )


def dump(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n")
