"""Checks whether the onnx runtime can serve a folder of onnxruntime-genai's model builder.

Called by `build`, so that operators see the reason before the engine starts. Imports onnx, so
`build` runs it in a child process. `Graph` is read without the weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engines.errors import INSTALL_BUILD_TOOLS, BuildError, MissingPackage, in_words

SEQLENS_K = 5  # index of the input of GroupQueryAttention
QUANTIZED_MATMUL = "MatMulNBits"
QUANTIZED_EMBEDDING = "GatherBlockQuantized"
LOGITS_FROM = "logits_from"  # the graph's input that `onnx_graph` adds


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """An input or output. None stands for a dynamic dimension."""

    element: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention node."""

    kind: str
    has_row_lengths: bool
    has_windowed_cache: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """external_bytes: file -> its minimum size. parameters: weights, each counted once.

    rope_switch_tokens: the length of the longest row above which the graph uses other rotary
    factors (LongRoPE), for all rows of the batch.
    """

    inputs: dict[str, GraphTensor]
    outputs: dict[str, GraphTensor]
    attentions: tuple[Attention, ...]
    external_bytes: dict[str, int]
    parameters: int
    rope_switch_tokens: int | None

    @classmethod
    def read(cls, path: Path) -> Graph:
        """
        Raises:
            BuildError: the file is not an ONNX model.
            MissingPackage: the package onnx is not installed.
        """
        try:
            import onnx
        except ImportError as error:
            raise MissingPackage(
                f"{path} cannot be read without the package onnx: run {INSTALL_BUILD_TOOLS}"
            ) from error
        try:
            graph = onnx.load(path, load_external_data=False).graph
        except Exception as error:  # errors of protobuf and of onnx, which share no base class
            raise BuildError(f"{path.name} is not an ONNX model: {error}") from error
        nodes = list(_nodes(graph))
        return cls(
            inputs={value.name: _tensor(value) for value in graph.input},
            outputs={value.name: _tensor(value) for value in graph.output},
            attentions=tuple(_attention(node) for node in nodes if "Attention" in node.op_type),
            external_bytes=_external_bytes(graph.initializer),
            parameters=_parameters(nodes, graph.initializer),
            rope_switch_tokens=_rope_switch_tokens(nodes),
        )


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes, those of branches included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _tensor(value: Any) -> GraphTensor:
    from onnx import TensorProto

    kind = value.type.tensor_type
    shape = tuple(
        dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim
    )  # fmt: skip
    return GraphTensor(TensorProto.DataType.Name(kind.elem_type), shape)


def _attention(node: Any) -> Attention:
    inputs = list(node.input)
    return Attention(
        kind=node.op_type,
        has_row_lengths=len(inputs) > SEQLENS_K and bool(inputs[SEQLENS_K]),
        has_windowed_cache=any(a.name == "sliding_window_cache" and a.i for a in node.attribute),
    )


def _rope_switch_tokens(nodes: list[Any]) -> int | None:
    """The constant in the comparison that selects the cosine and sine tables."""
    from onnx import numpy_helper

    made_by = {output: node for node in nodes for output in node.output}
    for node in nodes:
        is_choice = node.op_type == "If" and any("cos_cache" in name for name in node.output)
        comparison = made_by.get(node.input[0]) if is_choice else None
        if comparison is None or comparison.op_type != "Greater":
            continue
        constant = made_by.get(comparison.input[1])
        if constant is not None and constant.op_type == "Constant":
            return int(numpy_helper.to_array(constant.attribute[0].t))
    return None


def _external_bytes(initializers: Any) -> dict[str, int]:
    needed: dict[str, int] = {}
    for tensor in initializers:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if name := entries.get("location"):
            end = int(entries.get("offset", 0)) + int(entries.get("length", 0))
            needed[name] = max(needed.get(name, 0), end)
    return needed


def _parameters(nodes: list[Any], initializers: Any) -> int:
    """Counts the weights of plain and of quantized matrices."""
    quantized: dict[str, int] = {}
    parts: set[str] = set()  # packed weights, scales, zero points
    shapes = {tensor.name: tuple(tensor.dims) for tensor in initializers}
    for node in nodes:
        if node.op_type not in (QUANTIZED_MATMUL, QUANTIZED_EMBEDDING):
            continue
        numbers = {a.name: a.i for a in node.attribute}
        if node.op_type == QUANTIZED_MATMUL:
            quantized[node.input[1]] = numbers["K"] * numbers["N"]
        parts.update(name for name in node.input if name in shapes)
    plain = sum(
        math.prod(shape)
        for name, shape in shapes.items()
        if name not in parts and not name.startswith(("cos_cache", "sin_cache"))
    )
    return int(plain + sum(quantized.values()))


CONFIG = "genai_config.json"
TYPES = (
    "llama", "mistral", "phi3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text",
)  # fmt: skip
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model")
LFS_POINTER = b"version https://git-lfs"
CACHE_TYPES = {"FLOAT": 4, "FLOAT16": 2}  # bytes per element
REBUILD = "use its CPU variant, or convert it again with onnxruntime-genai's builder and -e cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The decoder as genai_config.json describes it. Tensor names have `%d` for the layer.

    `context_length` is in tokens.
    """

    kind: str
    context_length: int
    filename: str
    layers: int
    kv_heads: int
    head_size: int
    past: tuple[str, str]
    present: tuple[str, str]
    input_ids: str
    attention_mask: str
    position_ids: str
    logits: str

    @classmethod
    def read(cls, folder: Path) -> DecoderConfig:
        """
        Raises:
            BuildError: the file is missing, is not JSON, or describes no plain decoder.
        """
        try:
            model = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["model"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BuildError(f"{CONFIG} cannot be read: {in_words(error)}") from error
        try:
            _refuse_other_parts(model)
            return cls._of(model, model["decoder"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BuildError(f"{CONFIG} does not describe a decoder: {in_words(error)}") from error

    @classmethod
    def _of(cls, model: dict[str, Any], decoder: dict[str, Any]) -> DecoderConfig:
        inputs, outputs = decoder["inputs"], decoder["outputs"]
        return cls(
            kind=model["type"],
            context_length=int(model["context_length"]),
            filename=decoder["filename"],
            layers=int(decoder["num_hidden_layers"]),
            kv_heads=decoder["num_key_value_heads"],
            head_size=decoder["head_size"],
            past=(inputs["past_key_names"], inputs["past_value_names"]),
            present=(outputs["present_key_names"], outputs["present_value_names"]),
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            position_ids=inputs.get("position_ids", "position_ids"),
            logits=outputs["logits"],
        )

    def __post_init__(self) -> None:
        """Raises TypeError if a name has no `%d`."""
        for name in (*self.past, *self.present):
            name % 0

    def of_each_layer(self, names: tuple[str, str]) -> list[str]:
        return [name % layer for layer in range(self.layers) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Servable:
    """A folder that can be served. context_length: tokens. kv_token_bytes: KV cache per token."""

    context_length: int
    kv_token_bytes: int


def check(folder: str) -> Servable:
    """What the runtime needs to know about a folder that it can serve.

    Raises:
        BuildError: the runtime cannot serve it; the message has the reason only.
    """
    path = Path(folder)
    config = DecoderConfig.read(path)
    if config.kind not in TYPES:
        raise BuildError(
            f"architecture {config.kind!r} is not served by this runtime; it serves "
            f"{', '.join(TYPES)}"
        )
    if not any((path / name).is_file() for name in TOKENIZER_FILES):
        raise BuildError(f"it has no tokenizer: {TOKENIZER_FILES[0]} is missing")
    _check_present(path, config.filename)
    graph = Graph.read(path / config.filename)
    _check_data(path, graph)
    _check_attention(config, graph)
    _check_inputs(config, graph)
    _check_outputs(config, graph)
    element_bytes = CACHE_TYPES[graph.inputs[config.past[0] % 0].element]
    longest = config.context_length
    return Servable(
        context_length=min(longest, graph.rope_switch_tokens or longest),
        kv_token_bytes=2 * config.layers * config.kv_heads * config.head_size * element_bytes,
    )


def _refuse_other_parts(model: dict[str, Any]) -> None:
    """Refuses vision, speech, encoder and other model sections besides `decoder`."""
    if parts := [key for key, value in model.items() if isinstance(value, dict)]:
        others = [part for part in parts if part != "decoder"]
        if others:
            raise BuildError(f"it has a {others[0]!r} part; only text decoders are served")
    if "pipeline" in model.get("decoder", {}):
        raise BuildError("its decoder is a pipeline of several graphs; only one graph is served")


def _check_present(folder: Path, name: str) -> None:
    path = folder / name
    if Path(name).name != name:
        raise BuildError(f"{CONFIG} names a file outside the folder: {name}")
    if not path.is_file():
        raise BuildError(f"{name} is missing")
    with path.open("rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            raise BuildError(f"{name} is a Git LFS pointer, not the file: run `git lfs pull`")


def _check_data(folder: Path, graph: Graph) -> None:
    for name, needed_bytes in graph.external_bytes.items():
        _check_present(folder, name)
        size = (folder / name).stat().st_size
        if size < needed_bytes:
            raise BuildError(f"{name} is cut off: it has {size} bytes and needs {needed_bytes}")


def _check_attention(config: DecoderConfig, graph: Graph) -> None:
    """Checks for GroupQueryAttention with `seqlens_k`, which rows of different lengths need."""
    for attention in graph.attentions:
        if attention.kind != "GroupQueryAttention":
            raise BuildError(
                f"its graph uses {attention.kind}, which cannot share past and present buffers; "
                f"GroupQueryAttention is needed: {REBUILD}"
            )
        if not attention.has_row_lengths:
            raise BuildError(f"its GroupQueryAttention has no seqlens_k: {REBUILD}")
        if attention.has_windowed_cache:
            raise BuildError(
                "its KV cache slides with the attention window: convert it with the builder's "
                "--extra_options windowed_kv_cache=false"
            )
    if len(graph.attentions) != config.layers:
        raise BuildError(
            f"its graph has {len(graph.attentions)} attention nodes for {config.layers} layers; "
            "layers without a KV cache of their own are not served"
        )


def _check_inputs(config: DecoderConfig, graph: Graph) -> None:
    caches = config.of_each_layer(config.past)
    required = [config.input_ids, config.attention_mask, *caches]
    if missing := [name for name in required if name not in graph.inputs]:
        raise BuildError(f"its graph has no input {missing[0]!r}")
    known = {*required, config.position_ids, LOGITS_FROM}
    if unknown := [name for name in graph.inputs if name not in known]:
        raise BuildError(f"its graph has an unsupported input: {unknown[0]!r}")
    positions = graph.inputs.get(config.position_ids)
    if positions is not None and len(positions.shape) != 2:
        raise BuildError("its position ids have more than one dimension per token")
    for name in caches:
        _check_cache(config, name, graph)


def _check_cache(config: DecoderConfig, name: str, graph: Graph) -> None:
    cache = graph.inputs[name]
    if cache.element not in CACHE_TYPES:
        raise BuildError(f"its KV cache is {cache.element}; FLOAT and FLOAT16 are served")
    expected = (None, config.kv_heads, None, config.head_size)
    fits = len(cache.shape) == len(expected) and all(
        found is None or wanted is None or found == wanted
        for found, wanted in zip(cache.shape, expected, strict=True)
    )
    if not fits:
        raise BuildError(
            f"{name!r} has the shape {cache.shape}, {CONFIG} says {config.kv_heads} heads "
            f"of {config.head_size}"
        )


def _check_outputs(config: DecoderConfig, graph: Graph) -> None:
    for name in (config.logits, *config.of_each_layer(config.present)):
        if name not in graph.outputs:
            raise BuildError(f"its graph has no output {name!r}")
