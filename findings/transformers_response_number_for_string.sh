#!/usr/bin/env bash
# Guess: parse_response gets the tools so that an argument whose schema says string is a string.
# Seen: with the value parser that published templates of XML-like calls have (JSON, else text), the code 1234 is
# a number and true a boolean; only 007, which is no JSON, stays a string. The schema is asked for strings alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages transformers==5.24.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys

import transformers
from transformers.utils.chat_parsing import parse_response

template = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<function=(?P<name>\w+)>",
            "close": "</function>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<parameter=(?P<key>\w+)>(?P<value>.*?)</parameter>",
                "value_parser": {"name": "json", "args": {"allow_non_json": True}},
            },
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
schema = {"type": "object", "properties": {"code": {"type": "string"}}}
tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
print("transformers", transformers.__version__)
seen = []
for code in ("007", "1234", "true"):
    text = f"<function=f><parameter=code>{code}</parameter></function>"
    (call,) = parse_response(text, template, prefix="", tools=tools)["tool_calls"]
    seen.append(call["function"]["arguments"]["code"])
    print(code, "of type string ->", repr(seen[-1]))
sys.exit(seen != ["007", 1234, True])
PYTHON
