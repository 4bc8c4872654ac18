"""Turns the builder's fp32 graph into int8: 8-bit weights per output channel, 8-bit activations per
token. Tokens have scales of their own, so what a row computes does not depend on the other rows.
The head, the matmul that makes the logits, has 16-bit activations: each token is two rows of bytes.

`onnx_build` runs `quantize` in a child process: it imports onnx and holds all weights. Activations
are smoothed as in SmoothQuant (Xiao et al., 2022), https://arxiv.org/abs/2211.10438.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from build_engines import machine, onnx_agreement, onnx_graph
from build_engines.onnx_folder import QUANTIZED_MATMUL, DecoderConfig

# A file beside the graph: the engine refuses a CPU that has none of these flags. genai_config.json
# cannot have them, because onnxruntime-genai rejects keys that it does not know.
CPU_FLAGS = "cpu_flags"

NORMS = {"SimplifiedLayerNormalization": 1, "SkipSimplifiedLayerNormalization": 2}  # weight's input
BLOCK = 32
# Of the inputs: those with the largest errors per token are quantized per block, which is slower.
SHARE_IN_BLOCKS = 0.2
LARGEST = 127
FINER = 2 * LARGEST  # the second byte's step is so many times finer than the first one's
EXPONENTS = [
    (activation, weight) for activation in np.arange(0.3, 0.9, 0.1) for weight in (0.0, 0.3, 0.6)
]
MOST_TOKENS, MOST_COLUMNS = 128, 512  # that the search for exponents looks at
TINY = 1e-6
Floats = npt.NDArray[np.float32]

TEXT = """\
The committee met on a Tuesday in March, shortly after nine. Of the twelve members, ten were \
there; two had written that the snow kept them at home. "We have $4,350 left," said the treasurer, \
"and a roof that lets in the rain." Nobody laughed. Last year's plan -- new windows, another door, \
25% less for heating -- had been too hopeful, and everyone knew it.

## Installation

1. Download the archive from https://example.org/releases/v2.1.0.tar.gz and unpack it.
2. Run `./configure --prefix=/usr/local` and then `make -j8 install`.
3. If the compiler reports an error, check that `CC` and `PATH` are set.

import json
from collections import Counter

class Inventory:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.items = Counter(json.load(file))

    def take(self, name, count=1):
        if self.items[name] < count:
            raise ValueError(f"only {self.items[name]} of {name!r} left")
        self.items[name] -= count

SELECT name, SUM(amount) AS total FROM orders WHERE year >= 2019 GROUP BY name ORDER BY total DESC;

{"id": 48213, "status": "shipped", "total": 99.5, "lines": [{"sku": "A-7", "count": 3}, {"sku": \
"B-12", "count": 1}], "address": {"street": "12 Mill Lane", "city": "Leeds"}, "gift": false}

User: Why is the sky blue, and why does it turn red in the evening?
Assistant: Sunlight is scattered by the molecules of the air, and short waves are scattered more \
than long ones. During the day, blue light therefore reaches us from every direction. In the \
evening the light travels a longer way through the atmosphere, most of the blue is lost, and what \
remains is orange and red.
User: Translate to French and German: "I would like two tickets, please."
Assistant: French: « Je voudrais deux billets, s'il vous plaît. » German: „Ich hätte gern zwei \
Fahrkarten, bitte.“

int main(void) { for (int i = 0; i < 10; i++) { printf("%d\\n", i * i); } return 0; }
"""


def quantize(folder: str, weights: str) -> None:
    """Replaces the graph in `folder`. weights: the Hugging Face folder that it was made of."""
    import onnx

    config = DecoderConfig.read(Path(folder))
    path = Path(folder) / config.filename
    activations = _activations(path, config, _token_ids(weights))
    model = onnx.load(path)
    quantizer = _Quantizer(model.graph, config.logits)
    quantizer.part_embedding()
    errors = {name: quantizer.smooth(name, activations[name]) for name in quantizer.projections}
    del errors[quantizer.head.input[0]]
    worst = sorted(errors, key=errors.__getitem__, reverse=True)
    quantizer.replace(in_blocks=worst[: round(SHARE_IN_BLOCKS * len(worst))])
    onnx_graph.save(model, path)
    if machine.is_x86():
        (path.parent / CPU_FLAGS).write_text(" ".join(sorted(machine.VNNI)))


def _token_ids(weights: str) -> list[int]:
    from transformers import AutoConfig, AutoTokenizer

    vocab_size = AutoConfig.from_pretrained(weights).get_text_config().vocab_size
    ids = AutoTokenizer.from_pretrained(weights)(TEXT).input_ids
    return [token for token in ids if token < vocab_size]


def _activations(path: Path, config: DecoderConfig, ids: list[int]) -> dict[str, Floats]:
    """The inputs [tokens, channels] of all projections: some of the tokens of TEXT."""
    import onnx
    import onnxruntime as ort

    model = onnx.load(path, load_external_data=False)
    names = list(_Quantizer(model.graph, config.logits).projections)
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(path.parent)
    )
    session = ort.InferenceSession(model.SerializeToString(), options)
    outputs = session.run(names, onnx_agreement.prefill_feeds(session, config, ids))
    step = -(-len(ids) // MOST_TOKENS)
    return {name: output[0, ::step].copy() for name, output in zip(names, outputs, strict=True)}


class _Quantizer:
    """Edits a graph. projections: the matmuls of an input, by its name; the head is one of them."""

    def __init__(self, graph: Any, logits: str) -> None:
        self._graph = graph
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._makers = {name: node for node in graph.node for name in node.output if name}
        self._users = defaultdict(list)
        for node in graph.node:
            for name in node.input:
                self._users[name].append(node)
        self.head = onnx_graph.head(graph, logits)
        self.projections: dict[str, list[Any]] = {}
        for node in graph.node:
            if node is self.head or self._has_own_weight(node):
                self.projections.setdefault(node.input[0], []).append(node)

    def smooth(self, name: str, activations: Floats) -> float:
        """Divides an input's channels by scales, in what makes it, and multiplies the weights.

        Returns the error of the quantized products, relative to their size.
        """
        nodes = self.projections[name]
        weights = np.concatenate([self._array(node.input[1]) for node in nodes], 1)
        scales = self._folded(name, activations, weights)
        if scales is None:
            return product_error(activations, weights)
        for node in nodes:
            self._set(node.input[1], self._array(node.input[1]) * scales[:, None])
        return product_error(activations / scales, weights * scales[:, None])

    def _folded(self, name: str, activations: Floats, weights: Floats) -> Floats | None:
        """The scales by which the maker of the input now divides; None if it cannot."""
        maker = self._makers[name]
        nodes = self.projections[name]
        if len(self._users[name]) != len(nodes) or not self._is_own(nodes[0].input[1]):
            return None
        if maker.op_type in NORMS and maker.output[0] == name:
            weight = maker.input[NORMS[maker.op_type]]
            if not self._is_own(weight):
                return None
            scales = best_scales(activations, weights, is_exact=nodes[0] is self.head)
            self._set(weight, self._array(weight) / scales)
            return scales
        if maker.op_type == "Mul":  # of the activation function and the up projection
            makers = [self._makers[source] for source in maker.input if source in self._makers]
            up = [node for node in makers if self._is_projection(node)]
            if len(up) != 1 or len(self._users[up[0].output[0]]) != 1:
                return None
            scales = best_scales(activations, weights)
            self._set(up[0].input[1], self._array(up[0].input[1]) / scales)
            return scales
        if maker.op_type == "GroupQueryAttention" and maker.output[0] == name:
            return self._folded_into_values(maker, activations, weights)
        return None

    def _folded_into_values(
        self, attention: Any, activations: Floats, weights: Floats
    ) -> Floats | None:
        """Attention is linear in its values."""
        tensors = list(self._values(attention))
        if not tensors:
            return None
        heads = {attribute.name: attribute.i for attribute in attention.attribute}
        shape = (heads["kv_num_heads"], heads["num_heads"] // heads["kv_num_heads"], -1)
        scales = best_scales(activations, weights, shape)
        of_values = scales.reshape(shape)[:, 0].reshape(-1)
        for tensor in tensors:
            array = self._array(tensor)
            array[..., -len(of_values) :] /= of_values  # after the columns of queries and keys
            self._set(tensor, array)
        return scales

    def replace(self, *, in_blocks: Collection[str]) -> None:
        """Writes the quantized matmuls in place of the projections; in_blocks: of these inputs."""
        nodes: list[Any] = []
        old: dict[str, list[Any]] = {}
        for group in self.projections.values():
            old |= {node.name: group for node in group}
        self._add("int8/last", np.array([-1], np.int64))
        self._add("int8/step", np.array(1 / LARGEST, np.float32))
        self._add("int8/fine", np.array(1 / LARGEST / FINER, np.float32))
        self._add(onnx_graph.BYTE_FACTORS, np.array([1, 1 / FINER], np.float32))
        self._add("int8/axis", np.array([2], np.int64))
        self._add("int8/zero", np.array(128, np.uint8))
        for node in self._graph.node:
            if node.name in old and node.input[0] in in_blocks:
                nodes.append(self._quantized_in_blocks(node))
            elif node.name not in old:
                nodes.append(node)
            elif old[node.name][0] is node:
                nodes += self._quantized(node.input[0], old[node.name])
        used = {name for node in nodes for name in _all_inputs(node)}
        used |= {output.name for output in self._graph.output}
        nodes = [node for node in nodes if any(name in used for name in node.output)]
        used = {name for node in nodes for name in _all_inputs(node)}
        kept = [self._initializers[name] for name in self._initializers if name in used]
        del self._graph.node[:], self._graph.initializer[:]
        self._graph.node.extend(nodes)
        while kept:
            self._graph.initializer.append(kept.pop(0))

    def _quantized(self, name: str, nodes: list[Any]) -> Iterator[Any]:
        """One matmul for all projections of an input. A token of zeros becomes NaN / NaN, which is
        cast to any integer, and is zero again after the product with its largest channel.
        """
        from onnx import helper

        prefix = f"{nodes[0].name}/int8"
        arrays = [self._array(node.input[1]) for node in nodes]
        weights = np.concatenate(arrays, 1)
        steps = np.maximum(np.abs(weights).max(0), TINY) / LARGEST
        weight = self._add(f"{prefix}/weight", np.rint(weights / steps).astype(np.int8))
        scale = self._add(f"{prefix}/scale", steps.astype(np.float32))
        largest, product = f"{prefix}/largest", f"{prefix}/product"
        yield helper.make_node("Abs", [name], [f"{prefix}/abs"])
        yield helper.make_node("ReduceMax", [f"{prefix}/abs", "int8/last"], [largest], keepdims=1)
        yield helper.make_node("Div", [name, largest], [f"{prefix}/share"])
        if nodes[0] is self.head:
            yield from self._two_bytes(prefix)
        else:
            yield _to_bytes(f"{prefix}/share", "int8/step", f"{prefix}/input")
        yield helper.make_node(
            "MatMulIntegerToFloat",
            [f"{prefix}/input", weight, "int8/step", scale, "int8/zero"],
            [product],
            f"{prefix}/matmul",
            domain="com.microsoft",
        )
        if nodes[0] is self.head:
            yield from self._sum_of_bytes(prefix, largest, product, nodes[0].output[0])
            return
        if len(nodes) == 1:
            yield helper.make_node("Mul", [product, largest], [nodes[0].output[0]])
            return
        yield helper.make_node("Mul", [product, largest], [f"{prefix}/joined"])
        widths = np.array([array.shape[1] for array in arrays], np.int64)
        sizes = self._add(f"{prefix}/widths", widths)
        outputs = [node.output[0] for node in nodes]
        yield helper.make_node("Split", [f"{prefix}/joined", sizes], outputs, axis=-1)

    def _two_bytes(self, prefix: str) -> Iterator[Any]:
        """Shares [rows, tokens, channels] -> bytes [rows, tokens, 2, channels]: rounded, and the
        rest.
        """
        from onnx import helper

        names = ("whole", "first", "rounded", "rest", "second")
        whole, first, rounded, rest, second = (f"{prefix}/{name}" for name in names)
        yield helper.make_node("Unsqueeze", [f"{prefix}/share", "int8/axis"], [whole])
        yield _to_bytes(whole, "int8/step", first)
        yield helper.make_node("DequantizeLinear", [first, "int8/step", "int8/zero"], [rounded])
        yield helper.make_node("Sub", [whole, rounded], [rest])
        yield _to_bytes(rest, "int8/fine", second)
        yield helper.make_node("Concat", [first, second], [f"{prefix}/input"], axis=2)

    def _sum_of_bytes(self, prefix: str, largest: str, product: str, output: str) -> Iterator[Any]:
        """[rows, tokens, 2, outputs] -> [rows, tokens, outputs], by a product with two factors."""
        from onnx import helper

        factors, row, joined = (f"{prefix}/{name}" for name in ("factors", "row", "joined"))
        yield helper.make_node("Mul", [largest, onnx_graph.BYTE_FACTORS], [factors])
        yield helper.make_node("Unsqueeze", [factors, "int8/axis"], [row])
        yield helper.make_node("MatMul", [row, product], [joined])
        yield helper.make_node("Squeeze", [joined, "int8/axis"], [output])

    def _quantized_in_blocks(self, node: Any) -> Any:
        from onnx import helper

        weights = self._array(node.input[1]).T
        rows, columns = weights.shape
        blocks = -(-columns // BLOCK)
        weights = np.pad(weights, ((0, 0), (0, blocks * BLOCK - columns)))
        weights = weights.reshape(rows, blocks, BLOCK)
        steps = np.maximum(np.abs(weights).max(-1), TINY) / LARGEST
        packed = (np.rint(weights / steps[..., None]) + 128).astype(np.uint8)
        packed_name = self._add(f"{node.name}/packed", packed)
        scales = self._add(f"{node.name}/scales", steps.astype(np.float32))
        return helper.make_node(
            QUANTIZED_MATMUL,
            [node.input[0], packed_name, scales],
            list(node.output),
            node.name,
            domain="com.microsoft",
            K=columns,
            N=rows,
            bits=8,
            block_size=BLOCK,
            accuracy_level=4,
        )

    def part_embedding(self) -> None:
        """Gives a Gather from the transposed weight of the head a table [vocabulary, hidden]."""
        weight = self.head.input[1]
        for transpose in [one for one in self._users[weight] if one.op_type == "Transpose"]:
            gathers = self._users[transpose.output[0]]
            if all(one.op_type == "Gather" for one in gathers):
                table = np.ascontiguousarray(self._array(weight).T)
                name = self._add(f"{weight}/embedding", table)
                for one in gathers:
                    one.input[0] = name
                self._users[weight].remove(transpose)

    def _values(self, attention: Any) -> Iterator[str]:
        """The weight, and the bias, that make the values of an attention, if nothing else does."""
        source = attention.input[2] or attention.input[0]
        tensors: list[str] = []
        while len(self._users[source]) == 1 and (maker := self._makers.get(source)) is not None:
            if self._is_projection(maker):
                yield from [*tensors, maker.input[1]]
            biases = [name for name in maker.input if self._is_own(name)]
            if maker.op_type != "Add" or len(biases) != 1:
                return
            tensors += biases
            source = next(name for name in maker.input if name not in biases)

    def _is_projection(self, node: Any) -> bool:
        return any(node is one for name in node.input for one in self.projections.get(name, []))

    def _has_own_weight(self, node: Any) -> bool:
        is_matmul = node.op_type == "MatMul" and self._is_own(node.input[1])
        return is_matmul and len(self._initializers[node.input[1]].dims) == 2

    def _is_own(self, name: str) -> bool:
        return name in self._initializers and len(self._users[name]) == 1

    def _array(self, name: str) -> Floats:
        from onnx import numpy_helper

        return np.array(numpy_helper.to_array(self._initializers[name]), np.float32)

    def _set(self, name: str, value: npt.NDArray[Any]) -> None:
        from onnx import numpy_helper

        self._initializers[name].CopyFrom(numpy_helper.from_array(value.astype(np.float32), name))

    def _add(self, name: str, value: npt.NDArray[Any]) -> str:
        from onnx import numpy_helper

        self._initializers[name] = numpy_helper.from_array(value, name)
        return name


def _to_bytes(name: str, step: str, output: str) -> Any:
    from onnx import helper

    return helper.make_node("QuantizeLinear", [name, step, "int8/zero"], [output])


def product_error(activations: Floats, weights: Floats) -> float:
    """The mean over the tokens: the squared error over the square of the exact product."""
    some = weights[:, :: -(-weights.shape[1] // MOST_COLUMNS)]
    exact = activations @ some
    found = _rounded(activations, 1) @ _rounded(some, 0)
    error = np.square(exact - found).sum(1) / np.maximum(np.square(exact).sum(1), TINY)
    return float(error.mean())


def _rounded(values: Floats, axis: int) -> Floats:
    steps = np.maximum(np.abs(values).max(axis, keepdims=True), TINY) / LARGEST
    rounded: Floats = np.rint(values / steps) * steps
    return rounded


def best_scales(
    activations: Floats,
    weights: Floats,
    heads: tuple[int, int, int] | None = None,
    *,
    is_exact: bool = False,
) -> Floats:
    """The scales [channels] with the least error of the quantized product.

    activations: [tokens, channels]. weights: [channels, outputs]. heads: (heads of keys and values,
    query heads of each, -1) of channels; the query heads of one then share their scales.
    is_exact: activations are not rounded, so that only the errors of the weights count.
    """
    # Of each token: what is added to a token counts in relation to its norm.
    importance = 1 / np.maximum(np.square(activations).mean(1), TINY)
    mean_square = (np.square(activations) * importance[:, None]).sum(0) / importance.sum()
    spread = [np.abs(activations).max(0), np.sqrt(mean_square)]
    widths = np.sqrt(np.square(weights).mean(1))
    if heads is not None:
        spread, widths = [_shared(one, heads) for one in spread], _shared(widths, heads)
    step = -(-weights.shape[1] // MOST_COLUMNS)
    some = np.abs(weights[:, ::step])
    squares = np.square(some).sum(1)

    def error(scales: Floats) -> float:
        smooth = np.abs(activations / scales)
        of_activations = np.square(smooth.max(1)) @ importance * (np.square(scales) @ squares)
        weight_steps = np.square((some * scales[:, None]).max(0)).sum()
        return float(
            (not is_exact) * of_activations + weight_steps * (importance @ np.square(smooth).sum(1))
        )

    found = [np.ones(len(weights), np.float32)]
    for one in spread:
        for of_activation, of_weight in EXPONENTS:
            scales = np.maximum(one, TINY) ** of_activation / np.maximum(widths, TINY) ** of_weight
            found.append(np.maximum(scales, TINY).astype(np.float32))
    return min(found, key=error)


def _shared(values: Floats, heads: tuple[int, int, int]) -> Floats:
    split = values.reshape(heads)
    return np.broadcast_to(split.max(1, keepdims=True), split.shape).reshape(-1)


def _all_inputs(node: Any) -> Iterator[str]:
    """A node's inputs, and those of the nodes in its branches."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _all_inputs(inner)
