#!/usr/bin/env bash
# Guess: a text of an `enum` is written as JSON writes it, with quotes and line feeds escaped.
# Seen: backslashes are escaped. Line feeds and tabs can only be written as they are, so the object is no
# JSON, and a value with a quote cannot be written at all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages --no-deps \
  lm-format-enforcer==0.11.3 interegular==0.3.3 packaging==26.4 annotated-types==0.8.0 pydantic==2.14.4 \
  pydantic_core==2.50.5 typing_extensions==4.16.0 typing-inspection==0.4.5 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import json
import sys
from importlib.metadata import version

from lmformatenforcer import JsonSchemaParser

print("lm-format-enforcer", version("lm-format-enforcer"))


def allows(value, text):
    """Whether an object may be written so whose one property must be `value`."""
    enum = {"type": "object", "properties": {"a": {"enum": [value]}}, "required": ["a"]}
    parser = JsonSchemaParser(enum)
    for letter in text:
        if letter not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(letter)
    return parser.can_end()


seen = []
for value in ("plain", "C:\\temp", 'say "hi"', "two\nlines", "a\ttab"):
    as_json, raw = json.dumps({"a": value}), f'{{"a": "{value}"}}'
    seen.append((allows(value, as_json), allows(value, raw)))
    print(f"{value!r}: as JSON {seen[-1][0]}, unescaped {seen[-1][1]}")
sys.exit(seen != [(True, True), (True, False), (False, False), (False, True), (False, True)])
PYTHON
