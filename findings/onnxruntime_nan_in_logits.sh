#!/usr/bin/env bash
# Guess: ArgMax treats NaN alike wherever it stands: as the largest, as numpy and torch do, or as none.
# Seen: in rows NaN wins in the first place and is ignored in any other, so a row of logits yields token 0 or
# looks healthy, by position; in one dimension it wins everywhere. TopK of 1, NaN, 3, 2 loses the 3.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps onnxruntime==1.31.1 onnx==1.23.2 numpy==1.26.4 ml_dtypes==0.5.4 protobuf==6.33.5 \
  flatbuffers==25.12.19 packaging==26.3 typing-extensions==4.16.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(operator, inputs, **outputs):
    attributes = {"axis": inputs["x"].ndim - 1}
    node = helper.make_node(operator, list(inputs), list(outputs), **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    takes = [helper.make_tensor_value_info(name, kinds[name], inputs[name].shape) for name in inputs]
    gives = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "graph", takes, gives)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [array.ravel().tolist() for array in session.run(None, inputs)]


seen = []
first, second = np.array([[np.nan, 1, 2, 5], [1, np.nan, 2, 5]], np.float32)
for array in (first[None], second[None], first, second):
    seen += run("ArgMax", {"x": array}, index=TensorProto.INT64)
    print("onnxruntime", onnxruntime.__version__, "ArgMax of", array.tolist(), "is", seen[-1])
inputs = {"x": np.array([1, np.nan, 3, 2], np.float32), "k": np.array([2])}
seen.append(run("TopK", inputs, values=TensorProto.FLOAT, indices=TensorProto.INT64)[1])
print("the indices of TopK 2 of", inputs["x"].tolist(), "are", seen[-1])
sys.exit(seen != [[0], [3], [0], [1], [0, 1]])
PYTHON
