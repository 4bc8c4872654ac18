"""The build's changes of a graph: the same numbers for less work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from build_engines import onnx_agreement, onnx_build
from build_engines.models_file import OnnxEntry, OnnxOptions
from build_engines.onnx_folder import LOGITS_FROM, DecoderConfig, Graph
from onnx_cpu.decoder import OnnxDecoder

IDS = [7 + at * at % 90 for at in range(40)]


@pytest.fixture(scope="module")
def weights(artifacts: Path) -> Path:
    return artifacts / "weights" / "llama"


@pytest.fixture(scope="module")
def exported(weights: Path, tmp_path_factory) -> Path:
    """The engine's folder."""
    folder = tmp_path_factory.mktemp("int8") / "engine"
    log = folder.with_name("log")
    onnx_build.export(weights, folder, precision="int8", log=log, say=lambda line: None)
    return folder


def decoder(folder: Path) -> OnnxDecoder:
    return OnnxDecoder(folder, threads=1, rows=4, context_length=128)


def test_logits_are_computed_from_the_wanted_token_on(artifacts):
    one = decoder(artifacts / "llama" / "engine")
    whole = one.prefill(0, IDS, 0, 0).copy()
    assert len(whole) == len(IDS)
    for wanted in (0, 1, 20, len(IDS) - 1):
        found = one.prefill(1, IDS, 0, wanted)
        np.testing.assert_allclose(found, whole[wanted:], rtol=1e-5, atol=1e-5)
    assert np.array_equal(one.kv.read(0, 0, len(IDS)), one.kv.read(1, 0, len(IDS)))


def test_a_graph_without_that_input_gives_the_same_logits(artifacts, tmp_path):
    import onnx

    folder = artifacts / "llama" / "engine"
    model = onnx.load(folder / DecoderConfig.read(folder).filename)
    graph = model.graph
    graph.input.remove(next(one for one in graph.input if one.name == LOGITS_FROM))
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "genai_config.json").write_bytes((folder / "genai_config.json").read_bytes())
    plain, ours = decoder(tmp_path), decoder(folder)
    for wanted in (0, len(IDS) - 1):
        expected = ours.prefill(0, IDS, 0, wanted).copy()
        np.testing.assert_allclose(plain.prefill(0, IDS, 0, wanted), expected, rtol=1e-5, atol=1e-5)


def test_int8_is_near_fp32_and_rows_do_not_see_each_other(exported, weights):
    agreement = onnx_agreement.measure(str(weights), str(exported))
    assert agreement.argmax > 0.9
    assert agreement.divergence < 0.01
    one = decoder(exported)
    for row in range(4):
        one.prefill(row, IDS[row:], 0, 0)
    past = np.array([len(IDS) - row for row in range(4)])
    together = one.decode(np.array([3, 4, 5, 6]), past).copy()
    assert np.array_equal(one.decode(np.array([3]), past[:1])[0], together[0])


def test_gate_and_up_projection_are_one_matmul(exported):
    config = DecoderConfig.read(exported)
    graph = Graph.read(exported / config.filename)
    import onnx

    nodes = onnx.load(exported / config.filename, load_external_data=False).graph.node
    matmuls = [node.name for node in nodes if node.op_type == "MatMulNBits"]
    assert len(matmuls) == 4 * config.layers + 1
    assert graph.parameters > 0


@pytest.mark.parametrize(
    ("parameters", "memory_gb", "wanted"),
    [(5e8, 1, "int8"), (7e9, 24, "int8"), (8e9, 16, "int4"), (2e9, 4, "int4")],
)
def test_memory_decides_the_precision_of_large_models(parameters, memory_gb, wanted):
    assert onnx_build.default_precision(parameters, memory_gb * 10**9).precision == wanted


def test_a_precision_of_models_yaml_counts():
    entry = OnnxEntry(weights=Path("w"), onnx=OnnxOptions(precision="fp32"))
    assert onnx_build.chosen_precision(entry, Path("w")).precision == "fp32"
