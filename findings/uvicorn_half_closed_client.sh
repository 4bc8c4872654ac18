#!/usr/bin/env bash
# Guess: a client that closes its sending half behind the request, as `nc -N` does, gets its whole answer: TCP
# allows it, and the client still reads.
# Seen: it gets what was ready at once, and then the end of the connection, without the last chunk; the
# application meanwhile goes on to its end and no send() fails. With both parsers.
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
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    while not finished:
        threading.Event().wait(0.1)
    seen.append((answer.count(b"data: 1"), answer.endswith(b"0\r\n\r\n"), finished.pop()))
    print("uvicorn", uvicorn.__version__, protocol, "events of 3, last chunk, application finished:", seen[-1])
sys.exit(seen != [(1, False, True)] * 2)
PYTHON
