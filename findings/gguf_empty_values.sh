#!/usr/bin/env bash
# Guess: a key with an empty string or an empty list is in the file, with an empty value.
# Seen: GGUFWriter leaves the key out, without a word; 0, False and 0.0 are written. Who reads the file gets
# "no such key", and takes a default.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps gguf==0.19.0 numpy==1.26.4 tqdm==4.70.1 pyyaml==6.0.3 requests==2.34.2 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from importlib.metadata import version

from gguf import GGUFReader, GGUFWriter

writer = GGUFWriter("model.gguf", "llama")
writer.add_string("key.text", "")
writer.add_array("key.list", [])
writer.add_uint32("key.number", 0)
writer.add_bool("key.flag", False)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
seen = [name for name in GGUFReader("model.gguf").fields if name.startswith("key.")]
print("gguf", version("gguf"), "keys in the file:", seen)
sys.exit(seen != ["key.number", "key.flag"])
PYTHON
