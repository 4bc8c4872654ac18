#!/usr/bin/env bash
# Guess: with the response template that the documentation shows, of SmolLM, text before two calls is the
# content of the message.
# Seen: a line break between the two calls, which models write, opens the content once more; as nothing else is
# in it, it is empty, takes the place of the text, and is dropped.
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
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|im_end|>", "content": "text"},
    },
}
call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
print("transformers", transformers.__version__)
seen = []
for calls in (call, call + call, f"{call}\n{call}"):
    text = f"Let me see.\n{calls}<|im_end|>"
    seen.append(parse_response(text, template, prefix="").get("content"))
    print(repr(text), "-> content", repr(seen[-1]))
sys.exit(seen != ["Let me see.", "Let me see.", None])
PYTHON
