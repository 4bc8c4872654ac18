"""Rewrites a graph of onnxruntime-genai's builder, so that the engine computes less.

`onnx_build` runs `rewrite` in a child process: it imports onnx, and holds all weights.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from build_engines import gguf_weights
from build_engines.gguf_weights import BLOCK, QuantizedMatrix
from build_engines.onnx_folder import LOGITS_FROM, QUANTIZED_MATMUL, DecoderConfig

JOINED_BITS = 8  # joined 4-bit matrices were not faster
ATTENTION = "GroupQueryAttention"
BYTE_FACTORS = "int8/bytes"  # what `onnx_int8` multiplies the two bytes of the head's inputs by
ATTENTION_LENGTHS = (5, 6, 9)  # its inputs of integers: seqlens_k, total_sequence_length, positions


# A matrix of the builder's graph -> the matrices of transformers that it has, by their rows.
PARTS = {
    "attn/qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn/o_proj": ("self_attn.o_proj",),
    "mlp/gate_proj": ("mlp.gate_proj",),
    "mlp/up_proj": ("mlp.up_proj",),
    "mlp/down_proj": ("mlp.down_proj",),
}
PLACE = re.compile(r"/model/layers\.(\d+)/(\w+/\w+)/MatMul")
HEADS = ("lm_head.weight", "model.embed_tokens.weight")  # the second one where both are one matrix


def rewrite(folder: str, gguf: str | None, halves_cache: bool) -> None:
    """Joins projections of the same input, and adds the input LOGITS_FROM.

    gguf: the file whose blocks take the place of those that the builder has quantized.
    halves_cache: keys, values and the table of embeddings are kept in 16 bits.
    """
    import onnx

    config = DecoderConfig.read(Path(folder))
    path = Path(folder) / config.filename
    model = onnx.load(path)
    if gguf is not None:
        _take_blocks(model.graph, gguf_weights.matrices(Path(gguf)))
    _join_projections(model.graph)
    _add_logits_from(model.graph, config.logits)
    if halves_cache:
        _halve_cache(model.graph, {*config.of_each_layer(config.past)})
        _halve_embedding(model.graph, config.input_ids)
    save(model, path)


def save(model: Any, path: Path) -> None:
    """Writes the model, with its weights in one file beside it."""
    import onnx

    data = f"{path.name}.data"
    (path.parent / data).unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location=data)
    shutil.copymode(path, path.parent / data)  # onnx lets only its owner read it


def _take_blocks(graph: Any, matrices: dict[str, QuantizedMatrix]) -> None:
    """Puts the file's blocks in place of the builder's.

    A node that joins matrices of different bits keeps the builder's.
    """
    from onnx import helper, numpy_helper

    initializers = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        parts = _parts(node.name, matrices) if node.op_type == QUANTIZED_MATMUL else []
        if len({part.bits for part in parts}) != 1:
            continue
        bits, rows = parts[0].bits, sum(len(part.codes) for part in parts)
        codes = np.concatenate([part.codes for part in parts]).reshape(rows, -1, BLOCK)
        if bits == 4:
            codes = codes[..., 0::2] | codes[..., 1::2] << 4
        scales = np.concatenate([part.scales for part in parts])
        for tensor, values in zip(node.input[1:3], (codes, scales), strict=True):
            initializers[tensor].CopyFrom(numpy_helper.from_array(values, tensor))
        kept = [one for one in node.attribute if one.name not in ("bits", "block_size")]
        del node.attribute[:], node.input[3:]
        numbers = {"bits": bits, "block_size": BLOCK}
        node.attribute.extend([*kept, *(helper.make_attribute(*one) for one in numbers.items())])


def _parts(node: str, matrices: dict[str, QuantizedMatrix]) -> list[QuantizedMatrix]:
    """The matrices that a node joins; an empty list if the file lacks one of them."""
    if node.startswith("/lm_head/"):
        return [matrices[name] for name in HEADS if name in matrices][:1]
    if (found := PLACE.match(node)) is None or found[2] not in PARTS:
        return []
    layer = f"model.layers.{found[1]}"
    names = [f"{layer}.{name}.weight" for name in PARTS[found[2]]]
    if all(name in matrices for name in names):
        return [matrices[name] for name in names]
    return _of_phi3(layer, found[2], matrices)


def _of_phi3(layer: str, place: str, matrices: dict[str, QuantizedMatrix]) -> list[QuantizedMatrix]:
    """Phi-3 has joined projections in transformers, too."""
    if place == "attn/qkv_proj" and (whole := matrices.get(f"{layer}.self_attn.qkv_proj.weight")):
        return [whole]
    whole = matrices.get(f"{layer}.mlp.gate_up_proj.weight")
    if whole is None or place not in ("mlp/gate_proj", "mlp/up_proj"):
        return []
    half = len(whole.codes) // 2
    return [whole.rows(slice(0, half) if place == "mlp/gate_proj" else slice(half, None))]


def _add_logits_from(graph: Any, logits: str) -> None:
    """LOGITS_FROM [1]: the first token of a run whose logits are computed.

    The last matmul is a fifth of the work of a prefill where the vocabulary is large.
    """
    from onnx import TensorProto, helper

    users = _users_of_hidden(graph, logits)
    hidden = users[0].input[0]
    graph.input.append(helper.make_tensor_value_info(LOGITS_FROM, TensorProto.INT64, [1]))
    _constant(graph, LOGITS_FROM, [0])  # the default, for other programs that load the folder
    end = _constant(graph, f"{LOGITS_FROM}/end", [2**62])
    axis = _constant(graph, f"{LOGITS_FROM}/axis", [1])
    wanted = f"{LOGITS_FROM}/hidden"
    node = helper.make_node("Slice", [hidden, LOGITS_FROM, end, axis], [wanted])
    graph.node.insert(list(graph.node).index(users[0]), node)
    for user in users:
        user.input[0] = wanted


def _users_of_hidden(graph: Any, logits: str) -> list[Any]:
    """The head, or what `onnx_int8` makes its inputs with: the first input of each is the hidden
    states. Others may use these, too.
    """
    last = head(graph, logits)
    row = _making(graph, last.input[0])
    factors = _making(graph, row.input[0]) if row.op_type == "Unsqueeze" else row
    if BYTE_FACTORS not in factors.input:
        return [last]
    largest = factors.input[0]
    absolute = _making(graph, _making(graph, largest).input[0])
    share = [absolute.input[0], largest]
    return [one for one in graph.node if one is absolute or list(one.input) == share]


def head(graph: Any, logits: str) -> Any:
    """The matmul that makes the logits."""
    node = _making(graph, logits)
    while node.op_type not in ("MatMul", QUANTIZED_MATMUL):  # Gemma 2 caps its logits afterwards
        node = _making(graph, node.input[0])
    return node


def _join_projections(graph: Any) -> None:
    """One matmul of gate and up projection quantizes its input once: at one row, a decode step of a
    model of 135 million parameters takes 0.88 of the time.
    """
    users = defaultdict(list)
    for node in graph.node:
        if node.op_type == QUANTIZED_MATMUL and _numbers(node)["bits"] == JOINED_BITS:
            users[node.input[0]].append(node)
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    for nodes in users.values():
        if len(nodes) > 1 and len({len(node.input) for node in nodes}) == 1:
            _join(graph, nodes, initializers)


def _join(graph: Any, nodes: list[Any], initializers: dict[str, Any]) -> None:
    from onnx import helper, numpy_helper

    first, name = nodes[0], f"{nodes[0].name}/joined"
    inputs = [first.input[0]]
    for at in range(1, len(first.input)):
        tensors = [initializers[node.input[at]] for node in nodes]
        whole = np.concatenate([numpy_helper.to_array(tensor) for tensor in tensors])
        for tensor in tensors:
            graph.initializer.remove(tensor)
        inputs.append(f"{name}/{at}")
        graph.initializer.append(numpy_helper.from_array(whole, inputs[-1]))
    widths = [_numbers(node)["N"] for node in nodes]
    joined = type(first)()
    joined.CopyFrom(first)
    joined.name = name
    joined.input[:], joined.output[:] = inputs, [f"{name}/output"]
    next(one for one in joined.attribute if one.name == "N").i = sum(widths)
    sizes = _constant(graph, f"{name}/widths", widths)
    outputs = [node.output[0] for node in nodes]
    split = helper.make_node("Split", [f"{name}/output", sizes], outputs, f"{name}/split", axis=-1)
    place = list(graph.node).index(first)
    for node in nodes:
        graph.node.remove(node)
    graph.node.insert(place, split)
    graph.node.insert(place, joined)


def _halve_cache(graph: Any, past: set[str]) -> None:
    """Attention takes and gives float16: ONNX Runtime's kernel has one type for all its tensors.

    past: the names of the inputs that are the cache.
    """
    from onnx import TensorProto, helper

    halves: dict[str, str] = {}
    caches = set(past)

    def half(name: str) -> str:
        if name not in halves:
            halves[name] = f"{name}/half"
            nodes.append(helper.make_node("Cast", [name], [halves[name]], to=TensorProto.FLOAT16))
        return halves[name]

    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type == ATTENTION:
            for at, name in enumerate(node.input):
                if name and name not in past and at not in ATTENTION_LENGTHS:
                    node.input[at] = half(name)
            caches.update(node.output[1:])
            whole, node.output[0] = node.output[0], f"{node.output[0]}/half"
            back = helper.make_node("Cast", [node.output[0]], [whole], to=TensorProto.FLOAT)
            nodes += [node, back]
        else:
            nodes.append(node)
    for value in (*graph.input, *graph.output):
        if value.name in caches:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)


def _halve_embedding(graph: Any, input_ids: str) -> None:
    """The table stays in its mapped file; around each used row, the system maps 64 kB of it."""
    from onnx import TensorProto, helper, numpy_helper

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in [one for one in graph.node if one.op_type == "Gather"]:
        table = tensors.get(node.input[0])
        if table is None or node.input[1] != input_ids or table.data_type != TensorProto.FLOAT:
            continue
        if sum(table.name in one.input for one in graph.node) == 1:
            values = numpy_helper.to_array(table).astype(np.float16)
            table.CopyFrom(numpy_helper.from_array(values, table.name))
            whole, node.output[0] = node.output[0], f"{node.output[0]}/half"
            back = helper.make_node("Cast", [node.output[0]], [whole], to=TensorProto.FLOAT)
            graph.node.insert(list(graph.node).index(node) + 1, back)


def _making(graph: Any, output: str) -> Any:
    return next(node for node in graph.node if output in node.output)


def _numbers(node: Any) -> dict[str, int]:
    return {attribute.name: attribute.i for attribute in node.attribute}


def _constant(graph: Any, name: str, values: list[int]) -> str:
    from onnx import numpy_helper

    graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return name
