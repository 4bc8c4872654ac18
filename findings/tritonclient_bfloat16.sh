#!/usr/bin/env bash
# Guess: a BF16 tensor set from float32 rounds to the nearest, as every conversion to BF16 does, in all versions.
# Seen: 2.61 cuts the lower bytes off, so 1.99999 arrives as 1.9921875 and not as 2.0; 2.73 refuses
# float32 altogether, and takes ml_dtypes.bfloat16 only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 2.61.0 2.73.0; do
  "${PYTHON:-python3}" -m pip install --quiet --no-compile --target "$version" "tritonclient[grpc]==$version" ml_dtypes==0.5.4 2>pip.log || { cat pip.log; exit 2; }
done
cat >set_input.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from ml_dtypes import bfloat16
from tritonclient.grpc import InferInput
from tritonclient.utils import InferenceServerException

tensor = InferInput("x", [1], "BF16")
value = np.array([1.99999], np.float32)
try:
    tensor.set_data_from_numpy(value)
    sent = tensor._get_content() if hasattr(tensor, "_get_content") else tensor._raw_content
    seen = np.frombuffer(sent, bfloat16).tolist()
except InferenceServerException:
    seen = "refused"
print(f"tritonclient {version('tritonclient')}: {seen}; ml_dtypes rounds to {value.astype(bfloat16).tolist()}")
PYTHON
for version in 2.61.0 2.73.0; do PYTHONPATH=$version "${PYTHON:-python3}" set_input.py; done | tee seen
diff seen - <<'SEEN'
tritonclient 2.61.0: [1.9921875]; ml_dtypes rounds to [2.0]
tritonclient 2.73.0: refused; ml_dtypes rounds to [2.0]
SEEN
