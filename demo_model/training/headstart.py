"""Sets the heads of two layers by hand before training, so that the model copies from the start.

Layer 0 stores with each token the two tokens before it. Layer 1 attends to earlier places whose two
predecessors are the last two tokens, and repeats the token of that place. Training changes these
heads further; all other weights of `network.Llama` start at random.
"""

from __future__ import annotations

import torch
from torch import Tensor

from demo_model.training.network import Layer, Llama

CONSTANT = 0  # a dimension of the residual stream with the same value in every embedding
NEAR, FAR = 24, 14  # dimensions that hold the last token and the token before it
STEADY_TURN = 0.006  # radians per token: slower pairs of RoPE hardly turn within a prompt
SHARPNESS = 6.0  # how sharply the heads of layer 0 attend to one place


def head_start(network: Llama) -> None:
    width = network.shape.width
    stored = torch.arange(width - NEAR - FAR, width)
    with torch.no_grad():
        network.embedding[:, CONSTANT] = 0.08
        network.embedding[:, stored] = 0.0
        known = torch.zeros(64, width)
        known[:, 1 : stored[0]] = orthonormal(64, int(stored[0]) - 1)
        remember(network.blocks[0], known, stored, network.turns())
        recall(network.blocks[1], known, stored, network.turns())


def orthonormal(rows: int, columns: int) -> Tensor:
    columns_first: Tensor = torch.linalg.qr(torch.randn(columns, rows))[0]
    return columns_first.T


def remember(layer: Layer, known: Tensor, stored: Tensor, turns: Tensor) -> None:
    """Query heads 0 and 1 look one and two places back; both share key and value head 0."""
    dim, half = layer.shape.head_dim, layer.shape.head_dim // 2
    fast = torch.arange(half)[turns > 0.05]
    strength = SHARPNESS / 4  # the constant dimension is near 4 after the norm
    key = layer.shape.heads * dim
    value = key + layer.shape.kv_heads * dim
    layer.qkv[: 2 * dim] = 0.0
    layer.qkv[key : key + dim] = 0.0
    layer.qkv[key + fast, CONSTANT] = strength
    for head, back in ((0, 1), (1, 2)):
        layer.qkv[head * dim + fast, CONSTANT] = strength * torch.cos(back * turns[fast])
        layer.qkv[head * dim + half + fast, CONSTANT] = -strength * torch.sin(back * turns[fast])
    layer.qkv[value : value + dim] = known[:dim]
    layer.out[:, : 2 * dim] = 0.0
    layer.out[stored[:NEAR], torch.arange(NEAR)] = 0.05
    layer.out[stored[NEAR:], dim + torch.arange(FAR)] = 0.05


def recall(layer: Layer, known: Tensor, stored: Tensor, turns: Tensor) -> None:
    """Query head 0 compares the last two tokens with those that each place remembers."""
    dim, half = layer.shape.head_dim, layer.shape.head_dim // 2
    slow = torch.arange(half)[turns < STEADY_TURN]
    places = torch.cat([slow, slow + half])
    near, far = places[:NEAR], places[NEAR : NEAR + FAR]
    key = layer.shape.heads * dim
    value = key + layer.shape.kv_heads * dim
    layer.qkv[:dim] = 0.0
    layer.qkv[near] = 3.0 * known[: len(near)]
    layer.qkv[far, stored[: len(far)]] = 2.0
    layer.qkv[key : key + dim] = 0.0
    layer.qkv[key + near, stored[: len(near)]] = 1.5
    layer.qkv[key + far, stored[NEAR : NEAR + len(far)]] = 1.0
    layer.qkv[value : value + dim] = known[:dim]
    layer.out[:, :dim] = 0.2 * known[:dim].T
