#!/usr/bin/env bash
# Guess: a stream whose connection ends without `message_stop` raises an error in both SDKs.
# Seen: in JavaScript it does. In Python get_final_message() returns the half answer; only its stop_reason, which
# is None, tells that it is one.
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
try {
  console.log((await client.messages.stream({ model: "m", max_tokens: 9, messages: [] }).finalMessage()).content[0].text);
} catch (error) {
  console.log(error.constructor.name);
}
JS
cat >both.py <<'PYTHON'
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import anthropic

BLOCK = {"type": "text", "text": ""}
DELTA = {"type": "text_delta", "text": "Delete all files"}
stream = [
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m"}},
    {"type": "content_block_start", "index": 0, "content_block": BLOCK},
    {"type": "content_block_delta", "index": 0, "delta": DELTA},
]
stream[0]["message"] |= {"content": [], "stop_reason": None, "usage": {"input_tokens": 5, "output_tokens": 1}}
BODY = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in stream)


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.wfile.write(f"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{BODY}".encode())


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
with anthropic.Anthropic(api_key="none", base_url=url).messages.stream(model="m", messages=[], max_tokens=9) as events:
    message = events.get_final_message()
seen = [message.content[0].text, message.stop_reason]
seen.append(subprocess.check_output(["node", "client.mjs", url], text=True).strip())
print("anthropic for Python", anthropic.__version__, seen[:2], "and for JavaScript 1.14.0", seen[2])
sys.exit(seen != ["Delete all files", None, "AnthropicError"])
PYTHON
PYTHONPATH=packages "${PYTHON:-python3}" both.py
