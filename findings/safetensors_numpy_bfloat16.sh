#!/usr/bin/env bash
# Guess: safetensors.numpy loads what it saves.
# Seen: it saves BF16 and FP8 of ml_dtypes, and then cannot load the file: KeyError of the type's name.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps safetensors==0.8.0 numpy==1.26.4 ml_dtypes==0.5.4 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys

import ml_dtypes
import numpy as np
import safetensors
from safetensors.numpy import load, save

seen = []
for kind in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
    data = save({"weight": np.ones(2, kind)})
    try:
        seen.append(str(load(data)["weight"].dtype))
    except KeyError as error:
        seen.append(f"KeyError {error}")
    print("safetensors", safetensors.__version__, "saved", np.dtype(kind), "loaded", seen[-1])
sys.exit(seen != ["float16", "KeyError 'BF16'", "KeyError 'F8_E4M3'"])
PYTHON
