"""The Llama architecture, small enough to train on a CPU. `export` writes Hugging Face's names."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    vocabulary: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    inner: int = 704
    positions: int = 4096
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def qkv_heads(self) -> int:
        return self.heads + 2 * self.kv_heads


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.norm_in = nn.Parameter(torch.ones(shape.width))
        self.qkv = nn.Parameter(torch.empty(shape.qkv_heads * shape.head_dim, shape.width))
        self.out = nn.Parameter(torch.empty(shape.width, shape.width))
        self.norm_mlp = nn.Parameter(torch.ones(shape.width))
        self.gate_up = nn.Parameter(torch.empty(2 * shape.inner, shape.width))
        self.down = nn.Parameter(torch.empty(shape.width, shape.inner))

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """hidden: [batch, tokens, width]."""
        hidden = hidden + self.attend(self.normed(hidden, self.norm_in), cos, sin, mask)
        inner = functional.linear(self.normed(hidden, self.norm_mlp), self.gate_up.to(hidden.dtype))
        gate, up = inner.chunk(2, -1)
        return hidden + functional.linear(functional.silu(gate) * up, self.down.to(hidden.dtype))

    def normed(self, hidden: Tensor, scale: Tensor) -> Tensor:
        return functional.rms_norm(
            hidden, (self.shape.width,), scale.to(hidden.dtype), self.shape.norm_eps
        )

    def attend(self, hidden: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        # Plain products: in bfloat16 on a CPU they are faster than the fused attention's backward.
        shape = self.shape
        batch, tokens, _ = hidden.shape
        rows, dim = batch * shape.kv_heads, shape.head_dim
        qkv = functional.linear(hidden, self.qkv.to(hidden.dtype))
        qkv = qkv.view(batch, tokens, shape.qkv_heads, dim).transpose(1, 2)
        turned, value = qkv.tensor_split([shape.heads + shape.kv_heads], 1)
        turned = rotated(turned, cos, sin)
        query, key = turned.tensor_split([shape.heads], 1)
        query = query.reshape(rows, -1, dim) * dim**-0.5
        scores = torch.bmm(query, key.reshape(rows, tokens, dim).transpose(1, 2))
        scores = scores.view(rows, -1, tokens, tokens) + mask
        weights = scores.softmax(-1).view(rows, -1, tokens)
        mixed = torch.bmm(weights, value.reshape(rows, tokens, dim))
        mixed = mixed.view(batch, shape.heads, tokens, dim).transpose(1, 2)
        return functional.linear(mixed.reshape(batch, tokens, -1), self.out.to(hidden.dtype))


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = heads.shape[-1] // 2
    return heads * cos + torch.cat([-heads[..., half:], heads[..., :half]], -1) * sin


class Llama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.empty(shape.vocabulary, shape.width))
        self.blocks = [Layer(shape) for _ in range(shape.layers)]
        self.layers = nn.ModuleList(self.blocks)
        self.norm = nn.Parameter(torch.ones(shape.width))
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        for layer in self.blocks:  # each layer starts as the identity
            nn.init.zeros_(layer.out)
            nn.init.zeros_(layer.down)

    def hidden(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """ids: [batch, tokens] -> [batch, tokens, width], before the output embedding."""
        tokens = ids.shape[1]
        cos, sin = self.angles(tokens, ids.device)
        mask = torch.full((tokens, tokens), -1e9, device=ids.device, dtype=dtype).triu(1)
        hidden = functional.embedding(ids, self.embedding).to(dtype)
        for layer in self.blocks:
            hidden = layer(hidden, cos.to(dtype), sin.to(dtype), mask)
        return functional.rms_norm(
            hidden, (self.shape.width,), self.norm.to(dtype), self.shape.norm_eps
        )

    def turns(self) -> Tensor:
        """Radians by which each pair of a head turns per token."""
        dim = self.shape.head_dim
        return torch.pow(self.shape.rope_theta, -torch.arange(0, dim, 2) / dim)

    def angles(self, tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
        angles = torch.arange(tokens, device=device)[:, None] * self.turns().to(device)
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    def loss(self, ids: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        """Mean cross-entropy where `targets` is not -100; targets[i] is the token after ids[i]."""
        logits, wanted = self.wanted_logits(ids, targets, dtype)
        return functional.cross_entropy(logits, targets[wanted])

    def row_losses(self, ids: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        """[batch]: the sum of the cross-entropies of each row."""
        logits, wanted = self.wanted_logits(ids, targets, dtype)
        losses = torch.zeros(targets.shape, device=ids.device)
        losses[wanted] = functional.cross_entropy(logits, targets[wanted], reduction="none")
        return losses.sum(1)

    def wanted_logits(
        self, ids: Tensor, targets: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """[wanted, vocabulary], and the mask of the wanted places in `targets`."""
        wanted = targets != -100
        hidden = self.hidden(ids, dtype)[wanted]
        return functional.linear(hidden, self.embedding.to(dtype)).float(), wanted
