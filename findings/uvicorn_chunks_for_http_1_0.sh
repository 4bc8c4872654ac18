#!/usr/bin/env bash
# Guess: a stream for an HTTP/1.0 client, as many proxies are toward their upstream, ends with the connection,
# since chunked encoding came with HTTP/1.1.
# Seen: with httptools, the parser that uvicorn takes where it is installed, the stream is chunked, so such a
# client reads "9", "data: 1", "0" as its text. With h11 it is not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps uvicorn==0.54.0 httptools==0.9.0 h11==0.16.0 click==8.5.1 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import asyncio
import socket
import sys
import threading

import uvicorn


async def app(scope, receive, send):
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(3):
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await asyncio.sleep(0.2)
    await send({"type": "http.response.body"})
    finished.append(True)


def serve(protocol):
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, log_level="critical", lifespan="off"))
    threading.Thread(target=asyncio.run, args=[server.serve([listener])], daemon=True).start()
    return listener.getsockname()


finished = []
seen = []
for protocol in ("httptools", "h11"):
    with socket.create_connection(serve(protocol)) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b"")).lower()
    seen.append((b"transfer-encoding: chunked" in answer, answer.partition(b"\r\n\r\n")[2][:12]))
    print("uvicorn", uvicorn.__version__, protocol, "chunked, and the first bytes:", seen[-1])
sys.exit(seen != [(True, b"9\r\ndata: 1\n\n"), (False, b"data: 1\n\ndat")])
PYTHON
