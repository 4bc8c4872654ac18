"""The builder's ONNX graph, reading its weights from model.safetensors: they are shipped once.

onnxruntime-genai's builder writes every matrix again, transposed and as float32. The graph made
here begins with the float16 tensors of model.safetensors and joins, transposes and casts them
itself. ONNX Runtime does that once, when it loads the graph, and then runs the builder's graph with
the same bits. Called by `shipped`.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from build_engines.onnx_folder import LOGITS_FROM

PREFIX = "float16."  # of the tensors' names in the graph: the builder's names stay its float32 ones
TIED = {
    "lm_head.MatMul.weight": "model.embed_tokens.weight",  # the output layer is the embedding
    "final_norm_layernorm": "model.norm.weight",
}
Array = npt.NDArray[Any]


class UnknownWeight(Exception):
    """An initializer of the builder's graph is not what model.safetensors has for it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One float16 tensor of a safetensors file; `offset` and `length` in bytes."""

    shape: tuple[int, ...]
    offset: int
    length: int


class SafetensorsFile:
    """The tensors of one file by name, all of them float16."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = path.read_bytes()
        (header_length,) = struct.unpack("<Q", self._bytes[:8])
        header = json.loads(self._bytes[8 : 8 + header_length])
        self.tensors = {
            name: Stored(
                tuple(entry["shape"]),
                8 + header_length + entry["data_offsets"][0],
                entry["data_offsets"][1] - entry["data_offsets"][0],
            )
            for name, entry in header.items()
            if name != "__metadata__" and entry["dtype"] == "F16"
        }

    def array(self, name: str) -> Array:
        stored = self.tensors[name]
        flat = np.frombuffer(
            self._bytes, np.float16, count=stored.length // 2, offset=stored.offset
        )
        return flat.reshape(stored.shape)

    def external(self, name: str) -> TensorProto:
        """An initializer whose data are in this file, which stands beside the graph's."""
        stored = self.tensors[name]
        tensor = TensorProto(
            name=PREFIX + name,
            data_type=TensorProto.FLOAT16,
            dims=stored.shape,
            data_location=TensorProto.EXTERNAL,
        )
        place = {"location": self.path.name, "offset": stored.offset, "length": stored.length}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor


def share(built: Path, weights: SafetensorsFile) -> onnx.ModelProto:
    """The graph of the file `built`, with `weights` in place of its own.

    Raises:
        UnknownWeight: the two have different weights.
    """
    model = onnx.load(built)
    model.producer_version = ""  # the builder puts the commit of its working directory there
    shared: dict[str, TensorProto] = {}
    tables: list[TensorProto] = []
    loading: list[NodeProto] = []
    for initializer in model.graph.initializer:
        if initializer.name.startswith(("cos_cache", "sin_cache", LOGITS_FROM)):
            tables.append(initializer)
            continue
        names = tensor_names(initializer.name)
        if not weights.tensors.keys() >= set(names):
            raise UnknownWeight(f"{weights.path.name} has no {' and '.join(names)}")
        _check(initializer, [weights.array(name) for name in names])
        shared |= {name: weights.external(name) for name in names}
        loading += _load(initializer, names)
    nodes = [*loading, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend([*shared.values(), *tables])
    model.graph.node.extend(nodes)
    return model


def tensor_names(initializer: str) -> list[str]:
    """The tensors that the builder made an initializer from; it joins queries, keys and values."""
    for part, name in TIED.items():
        if part in initializer:
            return [name]
    name = re.sub(r"\.attn\.(\w+)\.MatMul", r".self_attn.\1", initializer).replace(".MatMul", "")
    if ".qkv_proj" in name:
        return [name.replace("qkv_proj", f"{letter}_proj") for letter in "qkv"]
    return [name]


def _check(initializer: TensorProto, parts: list[Array]) -> None:
    found = np.concatenate(parts).astype(np.float32)
    if not np.array_equal(found.T, numpy_helper.to_array(initializer)):
        raise UnknownWeight(f"{initializer.name} is not made from model.safetensors")


def _load(initializer: TensorProto, names: list[str]) -> Iterator[NodeProto]:
    """From the tensors to the builder's float32 initializer: join, transpose, cast."""
    value = PREFIX + names[0]
    if len(names) > 1:
        value = f"{initializer.name}.joined"
        yield helper.make_node("Concat", [PREFIX + name for name in names], [value], axis=0)
    if len(initializer.dims) == 2:
        transposed = f"{initializer.name}.transposed"
        yield helper.make_node("Transpose", [value], [transposed], perm=[1, 0])
        value = transposed
    yield helper.make_node("Cast", [value], [initializer.name], to=TensorProto.FLOAT)
