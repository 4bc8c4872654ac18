"""The shipped demo model is what `build` makes of its weights, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from build_engines.build import build_all, needing_tools
from build_engines.models_file import ModelsFile, OnnxEntry, OnnxOptions
from build_engines.tokenizer_tables import FILES
from tests.fixtures.demo_folder import FOLDER, TRAINED

FP32 = OnnxOptions(precision="fp32")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """artifacts/demo/, built from a copy of the weights that has nothing but what was trained."""
    folder = tmp_path_factory.mktemp("demo")
    weights = folder / "weights"
    weights.mkdir()
    for name in TRAINED:
        (weights / name).write_bytes((FOLDER / name).read_bytes())
    models = ModelsFile(models={"demo": OnnxEntry(weights=weights, onnx=FP32)})
    assert needing_tools(models, folder) == ["demo"]
    build_all(models, folder, say=print)
    return folder / "demo"


@pytest.mark.parametrize("name", [name for name in FILES if name != "facts.json"])
def test_the_tables_are_the_same_bytes(built: Path, name: str) -> None:
    assert (built / name).read_bytes() == (FOLDER / name).read_bytes()


def test_the_facts_are_the_same_but_for_the_time_of_the_build(built: Path) -> None:
    ours, theirs = (json.loads((at / "facts.json").read_text()) for at in (FOLDER, built))
    assert ours.pop("created") < theirs.pop("created")
    assert ours == theirs


def test_the_decoders_description_is_the_same(built: Path) -> None:
    ours, theirs = (at / "genai_config.json" for at in (FOLDER, built / "engine"))
    assert ours.read_bytes() == theirs.read_bytes()


def test_the_graph_is_the_builders_after_its_weights_are_read(built: Path) -> None:
    ours, theirs = (onnx.load(at / "model.onnx").graph for at in (FOLDER, built / "engine"))
    weights = {tensor.name for tensor in theirs.initializer}
    reading = [node for node in ours.node if is_reading(node, weights)]
    assert [node for node in ours.node if node not in reading] == list(theirs.node)
    assert list(ours.input) == list(theirs.input)
    assert list(ours.output) == list(theirs.output)


def is_reading(node: onnx.NodeProto, weights: set[str]) -> bool:
    """Whether it is one of the nodes that turn model.safetensors into the builder's weights."""
    name = node.output[0].removesuffix(".joined").removesuffix(".transposed")
    return name in weights


def test_every_weight_that_the_graph_reads_has_the_builders_bits(built: Path, tmp_path) -> None:
    model = onnx.load(FOLDER / "model.onnx")
    wanted = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in onnx.load(built / "engine" / "model.onnx").graph.initializer
    }
    reading = [node for node in model.graph.node if is_reading(node, {*wanted})]
    del model.graph.node[:], model.graph.input[:], model.graph.output[:]
    model.graph.node.extend(reading)
    tables = [one for one in model.graph.initializer if one.name in wanted]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape)
        for name, value in wanted.items()
        if name not in {one.name for one in tables}
    )
    onnx.save(model, tmp_path / "weights.onnx")
    session = ort.InferenceSession(str(tmp_path / "weights.onnx"))
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {}), strict=True))
    found |= {one.name: numpy_helper.to_array(one) for one in tables}
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.array_equal(found[name].view(np.uint32), value.view(np.uint32)), name


def test_onnx_runtime_makes_one_graph_of_both_and_their_logits_are_equal(
    built: Path, tmp_path: Path
) -> None:
    logits, kinds = [], []
    for number, folder in enumerate((FOLDER, built / "engine")):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3  # it warns that the optimized graph is for this machine
        options.optimized_model_filepath = str(tmp_path / f"{number}.onnx")
        session = ort.InferenceSession(str(folder / "model.onnx"), options)
        logits.append(session.run(["logits"], feeds(session))[0])
        optimized = onnx.load(tmp_path / f"{number}.onnx", load_external_data=False)
        kinds.append([node.op_type for node in optimized.graph.node])
    assert kinds[0] == kinds[1], "the weights are read once, when the graph is loaded"
    assert np.array_equal(*logits)


def feeds(session: ort.InferenceSession) -> dict[str, np.ndarray]:
    decoder = json.loads((FOLDER / "genai_config.json").read_text())["model"]["decoder"]
    past = np.zeros((2, decoder["num_key_value_heads"], 0, decoder["head_size"]), np.float32)
    ids = np.random.default_rng(1).integers(0, 2000, (2, 50))
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    return {value.name: given.get(value.name, past) for value in session.get_inputs()}
