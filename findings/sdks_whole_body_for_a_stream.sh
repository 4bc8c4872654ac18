#!/usr/bin/env bash
# Guess: a server that answers `stream: true` with one whole JSON body, as caches and old gateways do, gives an
# error in the SDK, or one piece.
# Seen: an empty stream and no error, in OpenAI's SDKs for Python and JavaScript and in Anthropic's. The body may
# as well be an error: {"error": ...} with status 200 raises in a stream of events, and vanishes here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  openai==3.57.0 anthropic==2.14.0 \
  2>pip.log || { cat pip.log; exit 2; }
npm install --silent --no-fund --no-audit openai@7.59.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
cat >client.mjs <<'JS'
import OpenAI from "openai";

const client = new OpenAI({ apiKey: "none", baseURL: process.argv[2] });
let pieces = 0;
for await (const _ of await client.chat.completions.create({ model: "m", messages: [], stream: true })) pieces++;
console.log(pieces);
JS
cat >both.py <<'PYTHON'
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import anthropic
import openai

BODY = json.dumps({"error": {"message": "the model is not loaded", "type": "server_error"}})


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.wfile.write(f"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{BODY}".encode())


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
gpt = openai.OpenAI(api_key="none", base_url=url).chat.completions
claude = anthropic.Anthropic(api_key="none", base_url=url).messages
seen = [
    len(list(gpt.create(model="m", messages=[], stream=True))),
    int(subprocess.check_output(["node", "client.mjs", url])),
    len(list(claude.create(model="m", messages=[], max_tokens=9, stream=True))),
]
print("pieces: openai for Python", openai.__version__, seen[0], "and for JavaScript 7.59.0", seen[1])
print("anthropic for Python", anthropic.__version__, seen[2])
sys.exit(seen != [0, 0, 0])
PYTHON
PYTHONPATH=packages "${PYTHON:-python3}" both.py
