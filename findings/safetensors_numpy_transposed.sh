#!/usr/bin/env bash
# Guess: a transposed array is saved with its values in their places, or refused, as safetensors.torch does.
# Seen: safetensors.numpy writes the memory as it lies under the new shape: other values come back, silently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps safetensors==0.8.0 numpy==1.26.4 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys

import numpy as np
import safetensors
from safetensors.numpy import load, save

array = np.arange(6, dtype=np.float32).reshape(2, 3).T
back = load(save({"weight": array}))["weight"]
print("safetensors", safetensors.__version__, "saved", array.tolist(), "loaded", back.tolist())
sys.exit((array.tolist(), back.tolist()) != ([[0, 3], [1, 4], [2, 5]], [[0, 1], [2, 3], [4, 5]]))
PYTHON
