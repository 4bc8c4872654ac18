#!/usr/bin/env bash
# Guess: LengthFinishReasonError is for answers that are parsed; a stream of plain text that ends with
# finish_reason "length" is an answer in both SDKs.
# Seen: in JavaScript it is. In Python chat.completions.stream() raises at the last chunk, without any
# response_format or tools, so every plain answer that reaches max_tokens ends in an exception.
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
console.log(choices[0].message.content, choices[0].finish_reason);
JS
cat >both.py <<'PYTHON'
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai

MEDIA_TYPE = "text/event-stream"
choice = {"index": 0, "delta": {"role": "assistant", "content": "Once"}, "finish_reason": "length"}
chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
BODY = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", MEDIA_TYPE)
        self.end_headers()
        self.wfile.write(BODY.encode())

    def log_message(self, *arguments):
        pass


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
try:
    with openai.OpenAI(api_key="none", base_url=url).chat.completions.stream(model="m", messages=[]) as stream:
        seen = [stream.get_final_completion().choices[0].message.content]
except openai.LengthFinishReasonError as error:
    seen = [type(error).__name__]
seen.append(subprocess.check_output(["node", "client.mjs", url], text=True).strip())
print("openai for Python", openai.__version__, seen[0], "and for JavaScript 7.59.0:", seen[1])
sys.exit(seen != ["LengthFinishReasonError", "Once length"])
PYTHON
PYTHONPATH=packages "${PYTHON:-python3}" both.py
