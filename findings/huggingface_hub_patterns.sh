#!/usr/bin/env bash
# Guess: of allow_patterns, as in a glob or .gitignore, "*.json" has the files of the top folder only (or all of
# them), and "**/*.json" has those of every folder, the top one included.
# Seen: "*.json" has every folder's, and "**/*.json" all but the top folder's, so config.json is not downloaded.
# A file m[1].gguf is not found by its own name, and an empty list is nothing, where None is everything.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps huggingface-hub==2.4.0 tqdm==4.70.1 filelock==4.1.0 packaging==26.3 pyyaml==6.0.3 \
  typing-extensions==4.16.0 requests==2.34.2 httpx==0.28.1 httpcore==1.0.9 anyio==4.16.0 sniffio==1.3.1 \
  h11==0.16.0 idna==3.20 certifi==2026.10.18 fsspec==2026.9.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from importlib.metadata import version

from huggingface_hub.utils import filter_repo_objects

files = ["config.json", "onnx/config.json", "m[1].gguf"]
seen = []
for patterns in ("*.json", "**/*.json", "m[1].gguf", [], None):
    seen.append(list(filter_repo_objects(files, allow_patterns=patterns)))
    print("huggingface-hub", version("huggingface-hub"), f"allow_patterns={patterns!r}:", seen[-1])
sys.exit(seen != [files[:2], files[1:2], [], [], files])
PYTHON
