#!/usr/bin/env bash
# Guess: a lookahead that always holds changes nothing about what `\d` and `\s` match.
# Seen: a pattern with a lookahead goes to another engine. There `\d` matches an Arabic digit, which it does
# not otherwise, and `\s` does not match U+FEFF, which is white space in ECMA 262 and otherwise matches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps jsonschema-rs==0.60.3 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from importlib.metadata import version

from jsonschema_rs import validator_for

print("jsonschema-rs", version("jsonschema-rs"))
seen = []
for text, patterns in ("\u0663", (r"^\d$", r"^(?=.)\d$")), ("\ufeff", (r"^\s$", r"^(?=.)\s$")):
    for pattern in patterns:
        seen.append(validator_for({"pattern": pattern}).is_valid(text))
        print(f"U+{ord(text):04X} against {pattern}: {seen[-1]}")
sys.exit(seen != [False, True, True, False])
PYTHON
