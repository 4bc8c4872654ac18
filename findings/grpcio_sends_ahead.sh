#!/usr/bin/env bash
# Guess: a client that reads one message of a stream and waits holds the server back after 64 KiB, the window of
# HTTP/2, or after a message or two.
# Seen: the server's generator runs on for megabytes on loopback: the window grows with what was received, and
# messages wait on both sides. What a slow reader has not read yet is generated, sent and counted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps grpcio==1.85.1 typing-extensions==4.16.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

MESSAGE = b"x" * 65536
sent = 0


class Handler(grpc.GenericRpcHandler):
    def service(self, call):
        def stream(request, context):
            global sent
            for sent in range(1, 1001):
                yield MESSAGE

        return grpc.unary_stream_rpc_method_handler(stream)


server = grpc.server(ThreadPoolExecutor(1), handlers=[Handler()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
messages = grpc.insecure_channel(f"127.0.0.1:{port}").unary_stream("/engine/infer")(b"")
next(messages)
time.sleep(3)
print("grpcio", grpc.__version__, "read 1 message of 64 KiB; the server made", sent)
ahead = sent
messages.cancel()
server.stop(0)
sys.exit(not 16 < ahead < 1000)
PYTHON
