"""The numbers of a published config.json from which sharding and memory are calculated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from build_engines.errors import BuildError

# Model-Optimizer's names -> those of models.yaml, if they differ.
ALGORITHMS = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8",
    "FP8_BLOCK_SCALES": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4": "nvfp4",
    "W4A16_AWQ": "int4_awq",
    "W4A8_AWQ": "w4a8_awq",
}
KV_SCHEMES = {("float", 8): "fp8", ("float", 4): "nvfp4", ("int", 8): "int8"}
# Where a quantization may be described: Model-Optimizer's own file, which comes first, or in
# config.json (TensorRT-LLM's _torch/model_config.py at b35ac1b6).
OWN_FILE = "hf_quant_config.json"
UNBLOCKED_FP8 = "fp8 without weight_block_size"
UNQUANTIZED = ("exclude_modules", "ignore", "modules_to_not_convert")  # lists of modules


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: all heads share one compressed key and value of a token.

    kv_rank, query_rank: the widths of the compressions; query_rank is 0 if queries have none.
    rotary, plain, value: the widths of one head's parts.
    """

    kv_rank: int
    query_rank: int
    rotary: int
    plain: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder: grouped-query or latent attention, and gated MLPs, dense or of experts.

    head: the width of an attention head. intermediate: the width of one MLP, or of one expert.
    positions: the longest context; 0 if unknown. tied: the output layer shares the embedding.
    window: how many tokens the windowed layers see. mtp_layers: the published layers for
    multi-token prediction, which are not among `layers`.
    native_quantization, native_kv_cache: how weights and KV cache are published; None for 16 bits.
    quantized_in: OWN_FILE, or the quant_method of config.json. weight_block: weights in a row that
    share a scale. only_experts: nothing else is quantized.
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
    latent: Latent | None = None
    experts: int = 0
    shared_intermediate: int = 0
    dense_layers: int = 0  # layers of a mixture whose MLP is dense, with `dense_intermediate`
    dense_intermediate: int = 0
    mtp_layers: int = 0
    window: int | None = None
    windowed_layers: int = 0
    native_quantization: str | None = None
    native_kv_cache: str | None = None
    quantized_in: str | None = None
    weight_block: int | None = None
    only_experts: bool = False

    @classmethod
    def read(cls, config: dict[str, Any]) -> Architecture:
        """Reads the shape of the language model.

        Args:
            config: as `fetch.config` reads it. A multimodal model's `text_config` is used.

        Raises:
            BuildError: the shape is missing, or of an unsupported kind.
        """
        text = config.get("text_config", config)
        if "index_topk" in text:
            raise BuildError(f"{text.get('model_type')}: sparse attention is not supported yet")
        try:
            return cls(
                **_shape(text), **_latent(text), **_experts(text), **_windows(text),
                **_origin(config, text),
            )  # fmt: skip
        except (KeyError, TypeError, ZeroDivisionError) as error:
            raise BuildError(f"config.json does not state the model's shape: {error!r}") from error

    @property
    def is_mixture(self) -> bool:
        return self.experts > 0

    @property
    def kv_numbers(self) -> int:
        """Numbers in the KV cache for one token in one layer."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rotary
        return 2 * self.kv_heads * self.head

    @property
    def compression_parameters(self) -> int:
        """The parameters of one layer's attention that no GPU splits: the latent compressions."""
        if self.latent is None:
            return 0
        return self.hidden * (self.latent.query_rank + self.latent.kv_rank + self.latent.rotary)

    @property
    def head_parameters(self) -> int:
        """The parameters of one layer's attention that are split by heads."""
        latent = self.latent
        if latent is None:
            return 2 * self.hidden * self.head * (self.heads + self.kv_heads)
        queries = (latent.query_rank or self.hidden) * (latent.plain + latent.rotary)
        keys_values = latent.kv_rank * (latent.plain + latent.value)
        return self.heads * (queries + keys_values + latent.value * self.hidden)

    @property
    def attention_parameters(self) -> int:
        """The parameters of the attention of all layers."""
        return self.layers * (self.compression_parameters + self.head_parameters)

    @property
    def expert_parameters(self) -> int:
        """The parameters of all experts of all layers."""
        layers = self.layers - self.dense_layers if self.is_mixture else 0
        return layers * self._layer_experts

    @property
    def _layer_experts(self) -> int:
        return self.experts * 3 * self.hidden * self.intermediate

    @property
    def _beside_experts(self) -> int:
        """The parameters of a layer's shared experts and router."""
        return self.hidden * (3 * self.shared_intermediate + self.experts)

    @property
    def mtp_parameters(self) -> tuple[int, int]:
        """The parameters of the layers for multi-token prediction: of experts, and of the rest.

        Each is a decoder layer behind a projection of two hidden states. TensorRT-LLM shares
        embedding and output layer with the model.
        """
        mlp = self._beside_experts if self.is_mixture else 3 * self.hidden * self.intermediate
        rest = self.compression_parameters + self.head_parameters + mlp + 2 * self.hidden**2
        return self.mtp_layers * self._layer_experts, self.mtp_layers * rest

    @property
    def mlp_parameters(self) -> int:
        """The parameters of the dense MLPs, the shared experts and the routers."""
        if not self.is_mixture:
            return self.layers * 3 * self.hidden * self.intermediate
        dense = self.dense_layers * 3 * self.hidden * self.dense_intermediate
        return (self.layers - self.dense_layers) * self._beside_experts + dense

    @property
    def table_parameters(self) -> int:
        """The parameters of the embedding, and of an untied output layer."""
        return (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters except norms, biases, and multi-token prediction."""
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
        "mtp_layers": config.get("num_nextn_predict_layers") or 0,
    }


def _latent(config: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek's and Kimi's names. A head is as wide as its value."""
    if not config.get("kv_lora_rank"):
        return {}
    found = Latent(
        kv_rank=config["kv_lora_rank"],
        query_rank=config.get("q_lora_rank") or 0,
        rotary=config["qk_rope_head_dim"],
        plain=config["qk_nope_head_dim"],
        value=config["v_head_dim"],
    )
    return {"latent": found}


def _experts(config: dict[str, Any]) -> dict[str, Any]:
    """Mixtral and gpt-oss use num_local_experts, Qwen num_experts, DeepSeek n_routed_experts."""
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((config[name] for name in names if config.get(name)), 0)
    if not experts:
        return {"intermediate": config["intermediate_size"]}
    intermediate = config.get("moe_intermediate_size") or config["intermediate_size"]
    shared = (config.get("n_shared_experts") or 0) * intermediate
    return {
        "experts": experts,
        "intermediate": intermediate,
        "shared_intermediate": config.get("shared_expert_intermediate_size") or shared,
        "dense_layers": _dense_layers(config),
        "dense_intermediate": config["intermediate_size"],
    }


def _dense_layers(config: dict[str, Any]) -> int:
    """Qwen lists them; DeepSeek's are the first ones, and those between every n-th layer."""
    if listed := config.get("mlp_only_layers"):
        return len(listed)
    first, every = config.get("first_k_dense_replace") or 0, config.get("moe_layer_freq") or 1
    layers: int = config["num_hidden_layers"]
    return layers - sum(layer >= first and layer % every == 0 for layer in range(layers))


def _windows(config: dict[str, Any]) -> dict[str, Any]:
    window = config.get("sliding_window")
    kinds = config.get("layer_types") or ()
    windowed = sum(kind == "sliding_attention" for kind in kinds)
    return {"window": window, "windowed_layers": windowed if window else 0}


def _origin(config: dict[str, Any], text: dict[str, Any]) -> dict[str, Any]:
    """Model-Optimizer writes quant_algo, other tools quant_method."""
    own = config.get(OWN_FILE)
    found = own or config.get("quantization_config") or text.get("quantization_config") or {}
    method, block = found.get("quant_method"), found.get("weight_block_size")
    name = found.get("quant_algo") or method
    if method == "fp8" and not block:
        method = UNBLOCKED_FP8
    kept = [str(each) for key in UNQUANTIZED for each in found.get(key) or ()]
    return {
        "native_quantization": name and ALGORITHMS.get(name.upper(), name.lower()),
        "native_kv_cache": _kv_cache(found),
        "quantized_in": OWN_FILE if own else method,
        "weight_block": block and block[-1],
        "only_experts": any("attn" in each for each in kept),
    }


def _kv_cache(quantization: dict[str, Any]) -> str | None:
    """Model-Optimizer's name, or the scheme that llm-compressor writes to config.json, too."""
    found = quantization.get("kv_cache_quant_algo") or quantization.get("kv_cache_scheme")
    if isinstance(found, dict):
        return KV_SCHEMES.get((found["type"], found["num_bits"]))
    return found and str(found).lower()
