"""The blocks of GGUF files are those of the graph that is built."""

from __future__ import annotations

import numpy as np
import pytest

from build_engines import gguf_weights, onnx_build
from build_engines.models_file import OnnxEntry
from build_engines.weights import LocalFolder
from tests.fixtures.gguf_files import write


@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_blocks_of_the_file_are_those_of_the_graph(tmp_path, family):
    import onnx
    from onnx import helper, numpy_helper

    path = write(tmp_path / "model.gguf", family, kinds=("Q4_0",)).path
    entry, artifacts = OnnxEntry(weights=LocalFolder(path)), tmp_path / "artifacts"
    artifacts.mkdir()
    said: list[str] = []
    onnx_build.build("m", entry, artifacts, said.append)
    assert any("blocks of Q4_0 and Q8_0 stay as they are" in line for line in said)
    graph = onnx.load(artifacts / "m" / "engine" / "model.onnx").graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = []
    for node in graph.node:
        if node.op_type == "MatMulNBits":
            assert {one.name: helper.get_attribute_value(one) for one in node.attribute}[
                "bits"
            ] == 4
            codes, scales = (stored[name] for name in node.input[1:3])
            halves = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1, 32)
            values = (halves.astype(np.float32) - 8) * scales.reshape(*halves.shape[:2], 1)
            found.append(values.reshape(len(codes), -1))
    matrices = gguf_weights.matrices(path)
    wanted = [m.scales.repeat(32, 1) * (m.codes.astype(np.float32) - 8) for m in matrices.values()]
    if family in ("qwen3", "phi3"):  # others have one matrix for embedding and head
        del wanted[list(matrices).index("model.embed_tokens.weight")]
    assert rows(found) == rows(wanted)


def rows(matrices: list[np.ndarray]) -> list[bytes]:
    return sorted(row.tobytes() for matrix in matrices for row in matrix)
