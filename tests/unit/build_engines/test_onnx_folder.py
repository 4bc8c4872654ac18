"""onnx_folder: what can be served passes, and each thing that cannot is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from build_engines import onnx_folder
from build_engines.errors import BuildError
from build_engines.onnx_folder import Graph

LAYERS, HEADS, HEAD_SIZE = 2, 2, 8
DATA_BYTES = 64


def config() -> dict:
    decoder = {
        "filename": "model.onnx",
        "head_size": HEAD_SIZE,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": HEADS,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past.%d.key",
            "past_value_names": "past.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    return {"model": {"type": "phi3", "context_length": 64, "decoder": decoder}}


def value(name: str, kind: int, *shape: object) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def attention(layer: int) -> onnx.NodeProto:
    inputs = ["qkv", "", "", f"past.{layer}.key", f"past.{layer}.value", "seqlens_k", "total"]
    outputs = ["out", f"present.{layer}.key", f"present.{layer}.value"]
    return helper.make_node("GroupQueryAttention", inputs, outputs, domain="com.microsoft")


def weight() -> onnx.TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[DATA_BYTES // 4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, content in {"location": "model.onnx.data", "offset": 0, "length": DATA_BYTES}.items():
        tensor.external_data.add(key=key, value=str(content))
    return tensor


def graph() -> onnx.ModelProto:
    sides = [f"{layer}.{side}" for layer in range(LAYERS) for side in ("key", "value")]
    shape = ("batch", HEADS, "length", HEAD_SIZE)
    ids = [value(name, TensorProto.INT64, "b", "s") for name in ("input_ids", "attention_mask")]
    caches = [value(f"past.{side}", TensorProto.FLOAT, *shape) for side in sides]
    outputs = [value(f"present.{side}", TensorProto.FLOAT, *shape) for side in sides]
    outputs.append(value("logits", TensorProto.FLOAT, "b", "s", 32))
    nodes = [attention(layer) for layer in range(LAYERS)]
    made = helper.make_graph(nodes, "g", [*ids, *caches], outputs, [weight()])
    return helper.make_model(made)


def write(folder: Path, model: onnx.ModelProto, fields: dict) -> None:
    (folder / "genai_config.json").write_text(json.dumps(fields))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "model.onnx.data").write_bytes(bytes(DATA_BYTES))
    (folder / "tokenizer.json").write_text("{}")


def reason(folder: Path) -> str:
    with pytest.raises(BuildError) as refused:
        onnx_folder.check(str(folder))
    return str(refused.value)


def test_a_plain_decoder_is_served_with_and_without_position_ids(tmp_path):
    model = graph()
    write(tmp_path, model, config())
    assert onnx_folder.check(str(tmp_path)).context_length == 64
    model.graph.input.append(value("position_ids", TensorProto.INT64, "b", "s"))
    write(tmp_path, model, config())
    assert onnx_folder.check(str(tmp_path)).context_length == 64


def test_a_context_ends_where_the_graph_would_turn_the_whole_batch_to_other_factors(tmp_path):
    """LongRoPE as the builder makes it: a comparison with the longest row of the batch."""
    model = graph()
    most = helper.make_tensor("most", TensorProto.INT64, [], [48])
    branches = {f"{name}_branch": helper.make_graph([], name, [], []) for name in ("then", "else")}
    model.graph.node.extend(
        [
            helper.make_node("Constant", [], ["48"], value=most),
            helper.make_node("Greater", ["total", "48"], ["is_long"]),
            helper.make_node("If", ["is_long"], ["cos_cache", "sin_cache"], **branches),
        ]
    )
    write(tmp_path, model, config())
    assert onnx_folder.check(str(tmp_path)).context_length == 48


def gone(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def text(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (gone("genai_config.json"), "genai_config.json cannot be read"),
        (text("genai_config.json", "{"), "genai_config.json cannot be read"),
        (text("genai_config.json", '{"model": {"type": "phi3"}}'), "does not describe a decoder"),
        (text("genai_config.json", '{"model": []}'), "does not describe a decoder"),
        (gone("tokenizer.json"), "it has no tokenizer"),
        (gone("model.onnx"), "model.onnx is missing"),
        (text("model.onnx", "rubbish"), "model.onnx is not an ONNX model"),
        (text("model.onnx", "version https://git-lfs.github.com/spec/v1"), "run `git lfs pull`"),
        (gone("model.onnx.data"), "model.onnx.data is missing"),
        (text("model.onnx.data", "short"), "model.onnx.data is cut off: it has 5 bytes"),
    ],
)
def test_a_file_that_is_missing_or_broken_is_named(tmp_path, damage, said):
    write(tmp_path, graph(), config())
    damage(tmp_path)
    assert said in reason(tmp_path)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        (("type",), "whisper", "architecture 'whisper' is not served"),
        (("vision",), {"filename": "v.onnx"}, "it has a 'vision' part"),
        (("encoder",), {}, "it has a 'encoder' part"),
        (("decoder", "pipeline"), [], "a pipeline of several graphs"),
        (("decoder", "inputs", "past_key_names"), "past", "does not describe a decoder"),
        (("decoder", "filename"), "../model.onnx", "a file outside the folder"),
        (("decoder", "num_hidden_layers"), 3, "2 attention nodes for 3 layers"),
        (("decoder", "head_size"), 16, "'past.0.key' has the shape (None, 2, None, 8)"),
    ],
)
def test_a_config_that_cannot_be_served_says_which_part(tmp_path, path, content, said):
    fields = config()
    section = fields["model"]
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = content
    write(tmp_path, graph(), fields)
    assert said in reason(tmp_path)


def other_attention(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "MultiHeadAttention"


def no_lengths(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[5] = ""


def sliding_cache(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("sliding_window_cache", 1))


def unknown_input(model: onnx.ModelProto) -> None:
    model.graph.input.append(value("pixel_values", TensorProto.FLOAT, 1))


def missing_input(model: onnx.ModelProto) -> None:
    model.graph.input[1].name = "mask"


def wide_positions(model: onnx.ModelProto) -> None:
    model.graph.input.append(value("position_ids", TensorProto.INT64, 3, "b", "s"))


def bfloat_cache(model: onnx.ModelProto) -> None:
    model.graph.input[2].type.tensor_type.elem_type = TensorProto.BFLOAT16


def missing_output(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = "elsewhere"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_attention, "uses MultiHeadAttention"),
        (no_lengths, "no seqlens_k"),
        (sliding_cache, "windowed_kv_cache=false"),
        (unknown_input, "an unsupported input: 'pixel_values'"),
        (missing_input, "no input 'attention_mask'"),
        (wide_positions, "more than one dimension per token"),
        (bfloat_cache, "its KV cache is BFLOAT16"),
        (missing_output, "no output 'present.0.key'"),
    ],
    ids=lambda given: getattr(given, "__name__", None),
)
def test_a_graph_that_cannot_be_served_says_why(tmp_path, change, said):
    model = graph()
    change(model)
    write(tmp_path, model, config())
    assert said in reason(tmp_path)


def test_parameters_are_counted_through_quantization(tmp_path):
    model = graph()
    model.graph.node.append(
        helper.make_node("MatMulNBits", ["x", "w", "scale"], ["y"], K=64, N=32, block_size=16)
    )
    write(tmp_path, model, config())
    assert Graph.read(tmp_path / "model.onnx").parameters == 64 * 32
