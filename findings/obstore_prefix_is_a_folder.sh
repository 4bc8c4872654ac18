#!/usr/bin/env bash
# Guess: list(prefix="models/llama") finds models/llama-3.gguf, as the same prefix does in S3's own API.
# Seen: a prefix is whole folder names, so it finds nothing. A byte range past the end is cut to what is there,
# and one that begins past the end is an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps obstore==0.12.1 typing-extensions==4.16.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from importlib.metadata import version

import obstore
from obstore.store import MemoryStore

store = MemoryStore()
obstore.put(store, "models/llama-3.gguf", b"GGUF!")
seen = []
for prefix in ("models", "models/", "models/llama"):
    seen.append(sum(len(page) for page in obstore.list(store, prefix=prefix)))
    print("obstore", version("obstore"), f"prefix {prefix!r} finds", seen[-1])
seen.append(bytes(obstore.get_range(store, "models/llama-3.gguf", start=4, end=100)))
print("bytes 4 to 100 of 5:", seen[-1])
try:
    obstore.get_range(store, "models/llama-3.gguf", start=5, end=100)
except Exception as error:
    seen.append(type(error).__name__)
print("bytes 5 to 100 of 5:", seen[-1])
sys.exit(seen != [1, 1, 0, b"!", "GenericError"])
PYTHON
