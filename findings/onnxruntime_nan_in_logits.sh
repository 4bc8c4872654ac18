#!/usr/bin/env bash
# Guess: ArgMax and TopK treat NaN alike wherever it stands: as the largest (numpy, torch), or as none.
# Seen: NaN wins in the first place and is ignored in any other, so a row of logits with one NaN yields token
# 0 or looks healthy, by position; TopK returns 1 and NaN of 1, NaN, 3, 2, and loses the 3.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --target packages --no-deps onnxruntime==1.31.1 onnx==1.23.2 numpy==1.26.4 ml_dtypes==0.5.4 protobuf==6.33.5 flatbuffers==25.12.19 packaging==26.3 typing-extensions==4.16.0 2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(operator, inputs, **outputs):
    node = helper.make_node(operator, list(inputs), list(outputs))
    kinds = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "graph", kinds, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [array.ravel().tolist() for array in session.run(None, inputs)]


nan = float("nan")
seen = []
for row in ([nan, 1, 2, 5], [1, nan, 2, 5]):
    seen.append(run("ArgMax", {"x": np.array(row, np.float32)}, index=TensorProto.INT64)[0])
    print("onnxruntime", onnxruntime.__version__, "ArgMax of", row, "is", seen[-1])
inputs = {"x": np.array([1, nan, 3, 2], np.float32), "k": np.array([2])}
seen.append(run("TopK", inputs, values=TensorProto.FLOAT, indices=TensorProto.INT64)[1])
print("TopK 2 of", inputs["x"].tolist(), "has the indices", seen[-1])
sys.exit(seen != [[0], [3], [0, 1]])
PYTHON
