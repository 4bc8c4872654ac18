#!/usr/bin/env bash
# Guess: a BYTES tensor takes str and bytes; None and a number are refused when the data is set.
# Seen: both are sent as text, "None" and "5", so a missing value reaches the model as a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  'tritonclient[grpc]==2.73.0' \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from importlib.metadata import version

import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.utils import deserialize_bytes_tensor

tensor = InferInput("text_input", [4], "BYTES")
tensor.set_data_from_numpy(np.array(["text", b"bytes", None, 5], dtype=object))
seen = deserialize_bytes_tensor(tensor._get_content()).tolist()
print("tritonclient", version("tritonclient"), "sends ['text', b'bytes', None, 5] as", seen)
sys.exit(seen != [b"text", b"bytes", b"None", b"5"])
PYTHON
