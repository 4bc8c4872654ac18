#!/usr/bin/env bash
# Guess: an integer over 64 bits is read as an integer, or refused, as it is when it is written.
# Seen: it is read as a float, so the id 18446744073709551617 loses its last digits without a word; and 1e400,
# which Python's json reads as infinity, is refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps orjson==3.13.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys

import orjson

seen = []
for text in ("18446744073709551615", "18446744073709551617", "1e400"):
    try:
        seen.append(repr(orjson.loads(text)))
    except orjson.JSONDecodeError:
        seen.append("refused")
    print("orjson", orjson.__version__, "reads", text, "as", seen[-1])
try:
    seen.append(orjson.dumps(2**64 + 1))
except TypeError as error:
    seen.append(str(error))
print("and writes it:", seen[-1])
expected = ["18446744073709551615", "1.8446744073709552e+19", "refused", "Integer exceeds 64-bit range"]
sys.exit(seen != expected)
PYTHON
