"""The numbers of a published config.json from which sharding and memory are calculated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from build_engines.errors import BuildError

# Model-Optimizer's names -> those of models.yaml, if they differ.
ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "int4_awq", "W4A8_AWQ": "w4a8_awq"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder of Llama's kind: grouped-query attention, and gated MLPs, dense or of experts.

    head: the width of an attention head. intermediate: the width of one MLP, or of one expert.
    positions: the longest context; 0 if unknown. tied: the output layer shares the embedding.
    window: how many tokens the windowed layers see. native_quantization: how the weights are
    published; None for unquantized weights.
    """

    kind: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    intermediate: int
    vocabulary: int
    positions: int
    tied: bool
    experts: int = 0
    shared_intermediate: int = 0
    dense_layers: int = 0  # layers of a mixture whose MLP is dense, with `dense_intermediate`
    dense_intermediate: int = 0
    window: int | None = None
    windowed_layers: int = 0
    native_quantization: str | None = None

    @classmethod
    def read(cls, config: dict[str, Any]) -> Architecture:
        """Reads the shape of the language model.

        Args:
            config: config.json. A multimodal model's `text_config` is used.

        Raises:
            BuildError: the shape is missing, or of an unsupported kind.
        """
        text = config.get("text_config", config)
        if "kv_lora_rank" in text:
            raise BuildError(f"{text.get('model_type')}: latent attention is not supported yet")
        try:
            return cls(**_shape(text), **_experts(text), **_windows(text), **_origin(config, text))
        except (KeyError, TypeError, ZeroDivisionError) as error:
            raise BuildError(f"config.json does not state the model's shape: {error!r}") from error

    @property
    def is_mixture(self) -> bool:
        return self.experts > 0

    @property
    def attention_parameters(self) -> int:
        """The parameters of the attention of all layers."""
        return self.layers * 2 * self.hidden * self.head * (self.heads + self.kv_heads)

    @property
    def expert_parameters(self) -> int:
        """The parameters of all experts of all layers."""
        layers = self.layers - self.dense_layers if self.is_mixture else 0
        return layers * self.experts * 3 * self.hidden * self.intermediate

    @property
    def mlp_parameters(self) -> int:
        """The parameters of the dense MLPs, the shared experts and the routers."""
        if not self.is_mixture:
            return self.layers * 3 * self.hidden * self.intermediate
        beside = self.hidden * (3 * self.shared_intermediate + self.experts)
        dense = self.dense_layers * 3 * self.hidden * self.dense_intermediate
        return (self.layers - self.dense_layers) * beside + dense

    @property
    def table_parameters(self) -> int:
        """The parameters of the embedding, and of an untied output layer."""
        return (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters except norms and biases."""
        layers = self.attention_parameters + self.expert_parameters + self.mlp_parameters
        return layers + self.table_parameters


def _shape(config: dict[str, Any]) -> dict[str, Any]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    return {
        "kind": str(config.get("model_type", "")),
        "hidden": hidden,
        "layers": config["num_hidden_layers"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head": config.get("head_dim") or hidden // heads,
        "vocabulary": config["vocab_size"],
        "positions": config.get("max_position_embeddings", 0),
        "tied": bool(config.get("tie_word_embeddings")),
    }


def _experts(config: dict[str, Any]) -> dict[str, Any]:
    """Mixtral and gpt-oss use num_local_experts, Qwen num_experts, DeepSeek n_routed_experts."""
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((config[name] for name in names if config.get(name)), 0)
    if not experts:
        return {"intermediate": config["intermediate_size"]}
    return {
        "experts": experts,
        "intermediate": config.get("moe_intermediate_size") or config["intermediate_size"],
        "shared_intermediate": config.get("shared_expert_intermediate_size") or 0,
        "dense_layers": len(config.get("mlp_only_layers") or ()),
        "dense_intermediate": config["intermediate_size"],
    }


def _windows(config: dict[str, Any]) -> dict[str, Any]:
    window = config.get("sliding_window")
    kinds = config.get("layer_types") or ()
    windowed = sum(kind == "sliding_attention" for kind in kinds)
    return {"window": window, "windowed_layers": windowed if window else 0}


def _origin(config: dict[str, Any], text: dict[str, Any]) -> dict[str, Any]:
    """Model-Optimizer writes quant_algo, other tools quant_method."""
    found = config.get("quantization_config") or text.get("quantization_config") or {}
    name = found.get("quant_algo") or found.get("quant_method")
    return {"native_quantization": None if name is None else ALGORITHMS.get(name, name.lower())}
