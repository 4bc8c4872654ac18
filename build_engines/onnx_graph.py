"""The structure of an ONNX graph, read without its weights. For `onnx_folder` and `model_name`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engines.errors import INSTALL_BUILD_TOOLS, BuildError, MissingPackage

SEQLENS_K = 5  # index of the input of GroupQueryAttention
QUANTIZED_MATMUL = "MatMulNBits"
QUANTIZED_EMBEDDING = "GatherBlockQuantized"


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
