#!/usr/bin/env bash
# Guess: with the response template of the documentation, for SmolLM, text before two calls is the message's
# content, and an argument whose schema says string is a string.
# Seen: the line break between the two calls opens the content again, and as that is then empty, the text is
# gone. With the template that MuseGlimmer's checkpoints get, the string 007 stays, but 1234 becomes a number.
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

SMOLLM = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|im_end|>", "content": "text"},
    },
}
ELEMENTS = {
    "start_anchor": "<|start|>assistant",
    "fields": {
        "tool_calls": {
            "open_pattern": '<invoke name="(?P<name>[^"]+)">',
            "close": "</invoke>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": '<parameter name="(?P<key>[^"]+)">(?P<value>.*?)</parameter>',
                "value_parser": {"name": "json", "args": {"allow_non_json": True}},
            },
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
print("transformers", transformers.__version__)
texts = []
for text in (f"Let me see.{call}{call}<|im_end|>", f"Let me see.{call}\n{call}<|im_end|>"):
    texts.append(parse_response(text, SMOLLM, prefix="").get("content"))
    print(repr(text), "-> content", repr(texts[-1]))
schema = {"type": "object", "properties": {"zip": {"type": "string"}}}
tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
values = []
for value in ("007", "1234"):
    text = f'<invoke name="f"><parameter name="zip">{value}</parameter></invoke>'
    (found,) = parse_response(text, ELEMENTS, prefix="", tools=tools)["tool_calls"]
    values.append(found["function"]["arguments"]["zip"])
    print(value, "of type string ->", repr(values[-1]))
sys.exit((texts, values) != (["Let me see.", None], ["007", 1234]))
PYTHON
