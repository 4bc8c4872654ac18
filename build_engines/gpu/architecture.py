"""The numbers of a published config.json from which sharding and memory are calculated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from build_engines.errors import BuildError, in_words

# Model-Optimizer's names -> those of models.yaml, if they differ.
ALGORITHMS = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8",
    "FP8_BLOCK_SCALES": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A16_AWQ": "int4_awq",
    "W4A8_AWQ": "w4a8_awq",
}
KV_SCHEMES = {("float", 8): "fp8", ("float", 4): "nvfp4", ("int", 8): "int8"}
# Where a quantization may be described: Model-Optimizer's own file, which comes first, or in
# config.json (TensorRT-LLM's _torch/model_config.py at b35ac1b6).
OWN_FILE = "hf_quant_config.json"
BARE_FP8, STATIC_FP8 = "fp8 without weight_block_size", "fp8 with static activations"
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
    """A decoder: grouped-query or latent attention, linear attention or Mamba in some layers, and
    MLPs, dense or of experts.

    head: the width of an attention head. intermediate: the width of one MLP, or of one expert.
    positions: the longest context; 0 if unknown. tied: the output layer shares the embedding.
    window: how many tokens the windowed layers see. mtp_layers: the published layers for
    multi-token prediction, which are not among `layers`. attention_layers: those with a KV cache.
    is_gated: attention has an output gate. matrices: of an MLP. index_head, index_heads: of the
    index by which DeepSeek's sparse attention chooses tokens.
    mixer_parameters, state_bytes: of all layers of another kind, and what these keep of a request.
    expert_hidden: the width of what experts read; less than `hidden` behind a projection.
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
    attention_layers: int
    is_gated: bool = False
    index_head: int = 0
    index_heads: int = 0
    mixer_parameters: int = 0
    state_bytes: int = 0
    matrices: int = 3
    experts: int = 0
    expert_layers: int = 0
    expert_hidden: int = 0
    shared_intermediate: int = 0
    dense_widths: int  # the sum of the widths of all dense MLPs
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
        try:
            return cls._stated(config, text)
        except BuildError:
            if (whole := _completed(text)) is None:
                raise
            return cls._stated(config, whole)

    @classmethod
    def _stated(cls, config: dict[str, Any], text: dict[str, Any]) -> Architecture:
        kind = text.get("model_type")
        is_mixed = 0 in (text.get("attn_type_list") or ())  # MiniMax M1, but not M2
        names = [name for name in UNKNOWN if text.get(name)] + ["attn_type_list"] * is_mixed
        if found := next(iter(names), None):
            raise BuildError(f"the shape of {kind} is not known here: it has {found}")
        tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
        try:
            layers = Layers.read(text)
            made = cls(
                tied=bool(tied), **_shape(text, layers), **_latent(text), **_experts(text, layers),
                **_mixers(text, layers), **_origin(config, text),
            )  # fmt: skip
            numbers = (made.hidden, made.layers, made.heads, made.kv_heads, made.head,
                       made.intermediate, made.vocabulary)  # fmt: skip
            if all(isinstance(each, int) and each > 0 for each in numbers):
                return made
            raise ValueError(f"a size in {numbers} is no positive number")
        except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
            reason = in_words(error)
            raise BuildError(f"config.json does not state the model's shape: {reason}") from error

    @property
    def is_mixture(self) -> bool:
        return self.experts > 0

    @property
    def kv_numbers(self) -> int:
        """Numbers in the KV cache for one token in one layer."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rotary + self.index_head
        return 2 * self.kv_heads * self.head

    @property
    def compression_parameters(self) -> int:
        """The parameters of one layer's attention that no GPU splits: the latent compressions."""
        if self.latent is None:
            return 0
        index = self.index_head + self.index_heads
        index += self.latent.query_rank * self.index_heads * self.index_head // self.hidden
        compressed = self.latent.query_rank + self.latent.kv_rank + self.latent.rotary
        return self.hidden * (compressed + index)

    @property
    def head_parameters(self) -> int:
        """The parameters of one layer's attention that are split by heads."""
        latent = self.latent
        if latent is None:
            queries = self.heads * (3 if self.is_gated else 2)
            return self.hidden * self.head * (queries + 2 * self.kv_heads)
        queries = (latent.query_rank or self.hidden) * (latent.plain + latent.rotary)
        keys_values = latent.kv_rank * (latent.plain + latent.value)
        return self.heads * (queries + keys_values + latent.value * self.hidden)

    @property
    def attention_parameters(self) -> int:
        """The parameters of the attention of all layers."""
        return self.attention_layers * (self.compression_parameters + self.head_parameters)

    @property
    def expert_parameters(self) -> int:
        """The parameters of all experts of all layers."""
        return self.expert_layers * self._layer_experts

    @property
    def _layer_experts(self) -> int:
        return self.experts * self.matrices * self.expert_hidden * self.intermediate

    @property
    def _beside_experts(self) -> int:
        """The parameters of a layer's shared experts, router and projections."""
        projected = 0 if self.expert_hidden == self.hidden else 2 * self.expert_hidden
        return self.hidden * (self.matrices * self.shared_intermediate + self.experts + projected)

    @property
    def mtp_parameters(self) -> tuple[int, int]:
        """The parameters of the layers for multi-token prediction: of experts, and of the rest.

        Each is a decoder layer behind a projection of two hidden states. TensorRT-LLM shares
        embedding and output layer with the model.
        """
        dense = self.matrices * self.hidden * self.intermediate
        mlp = self._beside_experts if self.is_mixture else dense
        rest = self.compression_parameters + self.head_parameters + mlp + 2 * self.hidden**2
        return self.mtp_layers * self._layer_experts, self.mtp_layers * rest

    @property
    def mlp_parameters(self) -> int:
        """The parameters of the dense MLPs, the shared experts and the routers."""
        dense = self.matrices * self.hidden * self.dense_widths
        return self.expert_layers * self._beside_experts + dense

    @property
    def table_parameters(self) -> int:
        """The parameters of the embedding, and of an untied output layer."""
        return (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters except norms, biases, and multi-token prediction."""
        layers = self.attention_parameters + self.mixer_parameters
        return layers + self.expert_parameters + self.mlp_parameters + self.table_parameters


# What changes a shape in ways that are not counted here: Gemma 3n and 4, DeepSeek V4, MiMo V2,
# MiniMax M3, Kimi Linear, Jamba, Falcon H1.
UNKNOWN = (
    "global_head_dim", "num_kv_shared_layers", "compress_ratios", "hybrid_layer_pattern",
    "sparse_attention_config", "linear_attn_config", "attn_layer_period", "mamba_d_ssm",
)  # fmt: skip
# Nemotron-H's letters; each of its layers is one of these, and others have an MLP in each layer.
PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
MIXERS = ("linear_attention", "mamba", "conv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The layers of each kind. experts, dense: those with such an MLP."""

    every: int
    attention: int
    windowed: int = 0
    mixers: dict[str, int]
    experts: int
    dense: int

    @classmethod
    def read(cls, config: dict[str, Any]) -> Layers:
        pattern = config.get("hybrid_override_pattern")
        blocks = [PATTERN[each] for each in pattern] if pattern else config.get("layers_block_type")
        every: int = len(blocks) if blocks else config["num_hidden_layers"]
        kinds = Counter(blocks or config.get("layer_types") or ())
        if not kinds and (interval := config.get("full_attention_interval")):
            kinds.update(attention=every // interval, linear_attention=every - every // interval)
        mixers = {name: kinds.pop(name) for name in MIXERS if name in kinds}
        if blocks:
            mlps = {"experts": kinds.pop("moe", 0), "dense": kinds.pop("mlp", 0)}
        else:
            dense = _dense_layers(config)
            mlps = {"experts": every - dense, "dense": dense}
        if strange := [name for name in kinds if not str(name).endswith("attention")]:
            raise ValueError(f"layers of the kind {strange[0]!r}")
        attention = kinds.total() if kinds or mixers else every
        windowed = kinds["sliding_attention"] if config.get("sliding_window") else 0
        return cls(every=every, attention=attention, windowed=windowed, mixers=mixers, **mlps)


def _completed(config: dict[str, Any]) -> dict[str, Any] | None:
    """With the defaults of transformers' class, which many a config.json leaves out; None for one
    that says little, or that transformers does not know. Runs no code of the model's.
    """
    if not {"model_type", "hidden_size", "num_hidden_layers"} <= config.keys():
        return None
    try:
        from transformers import AutoConfig

        return {**AutoConfig.for_model(**config).to_dict(), **config}
    except Exception:  # transformers lets its classes' errors through
        return None


def _shape(config: dict[str, Any], layers: Layers) -> dict[str, Any]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    return {
        "kind": str(config.get("model_type", "")),
        "hidden": hidden,
        "layers": layers.every,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads // _group(config),
        "head": config.get("head_dim") or hidden // heads,
        "vocabulary": config["vocab_size"],
        "positions": config.get("max_position_embeddings", 0),
        "is_gated": config.get("attn_output_gate") or config.get("model_type") == "qwen3_next",
        "window": config.get("sliding_window"),
        "mtp_layers": config.get("num_nextn_predict_layers") or 0,
    }


def _group(config: dict[str, Any]) -> int:
    """Queries for each key; in block_configs, where it is largest."""
    groups = [one["attention"]["n_heads_in_group"] for one in config.get("block_configs") or ()]
    return min(filter(None, groups), default=1)


def _mixers(config: dict[str, Any], layers: Layers) -> dict[str, Any]:
    """The layers with attention, and what those without it take: a matrix into the mixer and one
    out of it, its convolution, and a state of 16 or 32 bits for each request.
    """
    blocks = config.get("block_configs") or ()
    hidden, parameters, state = config["hidden_size"], 0, 0
    for kind, count in layers.mixers.items():
        into, out, convolved, kept = _mixer(kind, config)
        parameters += count * (hidden * (into + out) + convolved)
        state += count * kept
    names = (config.get("mamba_ssm_cache_dtype"), config.get("mamba_ssm_dtype"))
    parts = [part for one in blocks for part in (one["attention"], one["ffn"])]
    parameters += hidden**2 * sum(bool(part.get("replace_with_linear")) for part in parts)
    attention = sum(not _is_left_out(one["attention"]) for one in blocks)
    return {
        "attention_layers": attention if blocks else layers.attention,
        "windowed_layers": layers.windowed,
        "mixer_parameters": parameters,
        "state_bytes": state * (4 if "float32" in names else 2),
    }


def _is_left_out(part: dict[str, Any]) -> bool:
    return bool(part.get("no_op") or part.get("replace_with_linear"))


def _mixer(kind: str, config: dict[str, Any]) -> tuple[int, int, int, int]:
    """Rows of the matrix into one mixer and columns of that out of it, the numbers of its
    convolution, and those of a request's state. Qwen's gated delta net, Mamba 2 with the names of
    Nemotron-H and of Granite, and LFM2's convolution, as transformers 5.20 makes them.
    """
    if kind == "conv":
        hidden = config["hidden_size"]
        return 3 * hidden, hidden, hidden * config["conv_L_cache"], hidden * config["conv_L_cache"]
    if kind == "linear_attention":
        values = config["linear_num_value_heads"]
        keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        inner = values * config["linear_value_head_dim"]
        convolved = (2 * keys + inner) * config["linear_conv_kernel_dim"]
        kept = inner * config["linear_key_head_dim"]
        return 2 * keys + 2 * inner + 2 * values, inner, convolved, kept
    names = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    if "mamba_num_heads" in config:
        names = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
    heads, width, groups, size, kernel = (config[name] for name in names)
    inner, mixed = heads * width, heads * width + 2 * groups * size
    return inner + mixed + heads, inner, mixed * kernel, inner * size


def _latent(config: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek's and Kimi's names. A head is as wide as its value."""
    if not config.get("kv_lora_rank"):
        return {}
    index = {
        "index_head": config.get("index_head_dim") or 0,
        "index_heads": config.get("index_n_heads") or 0,
    }
    found = Latent(
        kv_rank=config["kv_lora_rank"],
        query_rank=config.get("q_lora_rank") or 0,
        rotary=config["qk_rope_head_dim"],
        plain=config["qk_nope_head_dim"],
        value=config["v_head_dim"],
    )
    return {"latent": found, **index}


def _experts(config: dict[str, Any], layers: Layers) -> dict[str, Any]:
    """Mixtral and gpt-oss use num_local_experts, Qwen num_experts, DeepSeek n_routed_experts."""
    acts = {config.get("mlp_hidden_act"), config.get("hidden_act")}
    found: dict[str, Any] = {"matrices": 2 if "relu2" in acts else 3}
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    experts = next((config[name] for name in names if config.get(name)), 0)
    if not experts or not layers.experts:
        widths = [_width(one["ffn"], config) for one in config.get("block_configs") or ()]
        # Granite 4 without experts has the shared one alone.
        width = max(widths, default=config.get("shared_intermediate_size"))
        width = width or config["intermediate_size"]
        count = layers.dense or layers.experts
        return found | {"intermediate": width, "dense_widths": sum(widths) or count * width}
    intermediate = config.get("moe_intermediate_size") or config["intermediate_size"]
    shared = config.get("moe_shared_expert_intermediate_size") or intermediate
    named = ("shared_expert_intermediate_size", "shared_intermediate_size")
    one_shared = next((config[name] for name in named if config.get(name)), 0)
    if "interleave_moe_layer_step" in config:  # Llama 4, which has one beside its experts
        one_shared = intermediate
    return found | {
        "experts": experts,
        "expert_layers": layers.experts,
        "expert_hidden": config.get("moe_latent_size") or config["hidden_size"],
        "intermediate": intermediate,
        "shared_intermediate": one_shared or (config.get("n_shared_experts") or 0) * shared,
        "dense_widths": layers.dense and layers.dense * _dense_width(config),
    }


def _dense_width(config: dict[str, Any]) -> int:
    names = ("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size")
    return next(int(config[name]) for name in names if config.get(name))


def _width(ffn: dict[str, Any], config: dict[str, Any]) -> int:
    """As DeciLM's configuration rounds it; 0 where a layer has no MLP."""
    if _is_left_out(ffn):
        return 0
    return -(-int(2 * ffn["ffn_mult"] * config["hidden_size"] / 3) // 256) * 256


def _dense_layers(config: dict[str, Any]) -> int:
    """Qwen lists them; DeepSeek's are the first ones, and those between every n-th layer."""
    if listed := config.get("mlp_only_layers"):
        return len(listed)
    if kinds := config.get("mlp_layer_types"):
        return int(kinds.count("dense"))
    names = ("first_k_dense_replace", "num_dense_layers")
    first = next((config[name] for name in names if config.get(name)), 0)
    every = config.get("moe_layer_freq") or 1
    if step := config.get("interleave_moe_layer_step"):
        return int(config["num_hidden_layers"] * (step - 1) // step)
    if isinstance(every, list):
        return int(every.count(0))
    layers: int = config["num_hidden_layers"]
    return layers - len(range(-(-first // every) * every, layers, every))


def _origin(config: dict[str, Any], text: dict[str, Any]) -> dict[str, Any]:
    """Model-Optimizer writes quant_algo, other tools quant_method."""
    own = config.get(OWN_FILE)
    found = own or config.get("quantization_config") or text.get("quantization_config") or {}
    method, block = found.get("quant_method"), found.get("weight_block_size")
    name = found.get("quant_algo") or method
    if method == "fp8" and not block:
        method = STATIC_FP8 if found.get("activation_scheme") == "static" else BARE_FP8
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
