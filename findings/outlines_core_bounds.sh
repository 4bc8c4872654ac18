#!/usr/bin/env bash
# Guess: the bounds of a number are enforced, or refused as unsupported, since those of lists and strings hold.
# Seen: `minimum`, `multipleOf` and `uniqueItems` are ignored without a word, and `minItems` beside them is not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps outlines-core==0.2.14 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import json
import re
import sys
from importlib.metadata import version

from outlines_core.json_schema import build_regex_from_schema

print("outlines-core", version("outlines-core"))
seen = []
for schema, invalid in (
    ({"type": "integer", "minimum": 3}, "1"),
    ({"type": "integer", "multipleOf": 5}, "4"),
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1,1]"),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, "[]"),
):
    seen.append(re.fullmatch(build_regex_from_schema(json.dumps(schema)), invalid) is not None)
    print(json.dumps(schema), "allows", invalid, seen[-1])
sys.exit(seen != [True, True, True, False])
PYTHON
