#!/usr/bin/env bash
# Guess: a timeout of infinity, or of a million years, never ends a call.
# Seen: it ends the call at once with DEADLINE_EXCEEDED. And a server sees another deadline than was set: 123,456
# seconds arrive as 123,600, rounded up to minutes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps grpcio==1.85.1 typing-extensions==4.16.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc


class Handler(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: str(round(context.time_remaining())).encode()
        )


server = grpc.server(ThreadPoolExecutor(1), handlers=[Handler()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/engine/infer")
seen = []
for timeout in (600, 123456, 1e12, float("inf")):
    try:
        seen.append(int(call(b"", timeout=timeout)))
    except grpc.RpcError as error:
        seen.append(error.code().name)
    print("grpcio", grpc.__version__, f"timeout={timeout}: the server has", seen[-1])
server.stop(0)
sys.exit(seen != [600, 123600, "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"])
PYTHON
