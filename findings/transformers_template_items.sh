#!/usr/bin/env bash
# Guess: `schema.items` in a chat template is the schema's key "items", as `schema.type` is its key "type".
# Seen: it is the method of the dict, so for a list of strings the prompt holds a memory address, another in
# each process: the model never sees the type, and no prefix of such a prompt is found in a cache again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  transformers==5.20.2 jinja2==3.1.6 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import re
import sys

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

tool = {"name": "f", "parameters": {"type": "array", "items": {"type": "string"}}}
seen = []
for name in ("type", "items", "items.type"):
    template = "{{ tools[0].parameters.%s }}" % name
    (prompt,), _ = render_jinja_template(
        conversations=[[{"role": "user", "content": "Hi"}]], tools=[tool], chat_template=template
    )
    print("transformers", transformers.__version__, template, "->", repr(prompt))
    seen.append(re.sub("0x[0-9a-f]+", "ADDRESS", prompt))
seen.append(render_jinja_template(
    conversations=[[{"role": "user", "content": "Hi"}]],
    tools=[tool],
    chat_template="{{ tools[0].parameters['items'].type }}",
)[0][0])
print("with ['items'].type:", repr(seen[-1]))
sys.exit(seen != ["array", "<built-in method items of dict object at ADDRESS>", "", "string"])
PYTHON
