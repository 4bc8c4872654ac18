#!/usr/bin/env bash
# Guess: fields of a delta that OpenAI does not know, such as `reasoning_content`, arrive in the final message of
# both SDKs alike: texts joined, anything else as it was last.
# Seen: Python joins texts, but also adds up numbers and booleans (true and true are 2). JavaScript joins nothing:
# of the reasoning only the last piece is left.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  openai==3.57.0 \
  2>pip.log || { cat pip.log; exit 2; }
npm install --silent --no-fund --no-audit openai@7.59.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
cat >client.mjs <<'JS'
import OpenAI from "openai";

const client = new OpenAI({ apiKey: "none", baseURL: process.argv[2] });
const { choices } = await client.chat.completions.stream({ model: "m", messages: [] }).finalChatCompletion();
console.log(JSON.stringify(choices[0].message));
JS
cat >both.py <<'PYTHON'
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai

deltas = [
    {"role": "assistant", "reasoning_content": "First, ", "tokens": 3, "is_cached": True},
    {"reasoning_content": "second.", "tokens": 3, "is_cached": True},
    {"content": "Done."},
]
chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
choices[-1]["finish_reason"] = "stop"
events = "".join(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n" for choice in choices) + "data: [DONE]\n\n"


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.wfile.write(f"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}".encode())


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
with openai.OpenAI(api_key="none", base_url=url).chat.completions.stream(model="m", messages=[]) as stream:
    python = stream.get_final_completion().choices[0].message.to_dict()
javascript = json.loads(subprocess.check_output(["node", "client.mjs", url]))
names = ("content", "reasoning_content", "tokens", "is_cached")
seen = [[message.get(name) for name in names] for message in (python, javascript)]
print("openai for Python", openai.__version__, seen[0])
print("openai for JavaScript", json.load(open("node_modules/openai/package.json"))["version"], seen[1])
sys.exit(seen != [["Done.", "First, second.", 6, 2], ["Done.", "second.", 3, True]])
PYTHON
PYTHONPATH=packages "${PYTHON:-python3}" both.py
