#!/usr/bin/env bash
# Guess: a long error message arrives, or is shortened; the status code is what the server set.
# Seen: details over 8 to 16 KiB count as too large metadata: the client gets RESOURCE_EXHAUSTED, which callers
# retry, in place of INVALID_ARGUMENT, and the message is gone.
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
        def refuse(request, context):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "x" * int(request))

        return grpc.unary_unary_rpc_method_handler(refuse)


server = grpc.server(ThreadPoolExecutor(1), handlers=[Handler()])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/engine/infer")
seen = []
for length in (7000, 20000):
    try:
        call(str(length).encode())
    except grpc.RpcError as error:
        seen.append((error.code().name, set(error.details()) == {"x"}))
        print("grpcio", grpc.__version__, f"{length} characters:", error.code().name, error.details()[:90])
server.stop(0)
sys.exit(seen != [("INVALID_ARGUMENT", True), ("RESOURCE_EXHAUSTED", False)])
PYTHON
