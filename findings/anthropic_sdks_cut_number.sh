#!/usr/bin/env bash
# Guess: a tool call that `max_tokens` cuts inside a value loses that value, or fails, the same in both SDKs.
# Seen: a cut string is dropped in both. A cut number is kept in Python, so of {"keep_days": 120} cut behind 12
# remains a valid call with 12, and dropped in JavaScript.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  anthropic==2.14.0 \
  2>pip.log || { cat pip.log; exit 2; }
npm install --silent --no-fund --no-audit @anthropic-ai/sdk@1.14.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
cat >client.mjs <<'JS'
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ apiKey: "none", baseURL: process.argv[2] });
const message = await client.messages.stream({ model: "m", max_tokens: 9, messages: [] }).finalMessage();
console.log(JSON.stringify(message.content[0].input));
JS
cat >both.py <<'PYTHON'
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import anthropic

BLOCK = {"type": "tool_use", "id": "t", "name": "clean", "input": {}}


def body(cut):
    usage = {"input_tokens": 5, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    stream = [
        {"type": "message_start", "message": {**head, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": BLOCK},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": cut}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in stream)


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.wfile.write(f"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{BODY}".encode())


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
client = anthropic.Anthropic(api_key="none", base_url=url)
seen = []
for cut in ('{"keep_days": 12', '{"path": "/tm'):
    BODY = body(cut)
    with client.messages.stream(model="m", messages=[], max_tokens=9) as events:
        python = events.get_final_message().content[0].input
    seen.append((python, json.loads(subprocess.check_output(["node", "client.mjs", url]))))
    print(cut, "-> anthropic for Python", anthropic.__version__, python, "and for JavaScript 1.14.0", seen[-1][1])
sys.exit(seen != [({"keep_days": 12}, {}), ({}, {})])
PYTHON
PYTHONPATH=packages "${PYTHON:-python3}" both.py
