#!/usr/bin/env bash
# Guess: a number in JSON that its tensor's integer type cannot hold is refused, as 1.5 is.
# Seen: it wraps silently for types of 8, 16 and 32 bits: 300 arrives as 44 in INT8 and UINT8, 4294967301 as 5 in
# INT32. Only beyond 64 bits, and for negative numbers in an unsigned type, is it refused, with status 500.
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; wait; rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv environment  # Triton runs a model with the first `python3` on PATH
PATH=$PWD/environment/bin:$PATH
python3 -m pip install --quiet --no-compile --no-deps nvidia-pytriton==0.7.0 numpy==1.26.4 2>pip.log ||
  { cat pip.log; exit 2; }
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
triton=$packages/pytriton/tritonserver
minor=$(python3 -c 'import sys; print(f"3.{sys.version_info.minor}")')
cp -r "$triton/backends" backends
cp "$triton/python_backend_stubs/$minor/triton_python_backend_stub" backends/python/
mkdir -p models/echo/1
cat >models/echo/1/model.py <<'PYTHON'
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self._same(x) for x in one.inputs()]) for one in requests]

    def _same(self, tensor):
        return pb_utils.Tensor(f"{tensor.name()}_OUT", tensor.as_numpy())
PYTHON
TYPES=(INT8 UINT8 INT16 INT32 UINT32 INT64)
{
  echo 'backend: "python" instance_group [{kind: KIND_CPU}]'
  for type in "${TYPES[@]}"; do
    echo "input [{name: \"$type\" data_type: TYPE_$type dims: [-1] optional: true}]"
    echo "output [{name: \"${type}_OUT\" data_type: TYPE_$type dims: [-1]}]"
  done
} >models/echo/config.pbtxt
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
lib=$(python3 -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
LD_LIBRARY_PATH=$packages/nvidia_pytriton.libs:$lib "$triton/bin/tritonserver" \
  --model-repository=models --backend-directory=backends --disable-auto-complete-config --allow-grpc=false \
  --allow-metrics=false --allow-gpu-metrics=false --http-address=127.0.0.1 --http-port="$port" >server.log 2>&1 &
server=$!
python3 - "$port" "${TYPES[@]}" <<'PYTHON' || { tail -5 server.log; exit 1; }
import json
import sys
import time
import urllib.error
import urllib.request

port, *types = sys.argv[1:]
address = f"http://127.0.0.1:{port}/v2"


def asked(path, body=None):
    content = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address + path, content)) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code


def echoed(kind, number):
    tensor = {"name": kind, "datatype": kind, "shape": [1], "data": [number]}
    found = asked("/models/echo/infer", {"inputs": [tensor]})
    return found if isinstance(found, int) else found["outputs"][0]["data"][0]


for _ in range(240):
    try:
        if asked("/health/ready") is None:
            break
    except OSError:
        pass
    time.sleep(0.5)
print("tritonserver", asked("")["version"])
wrong = (300, 70_000, 2**32 + 5, 2**64, -1, 1.5)
seen = {kind: [echoed(kind, number) for number in wrong] for kind in types}
print("sent", *wrong)
for kind, found in seen.items():
    print(kind, *found)
sys.exit(
    seen
    != {
        "INT8": [44, 112, 5, 500, -1, 500],
        "UINT8": [44, 112, 5, 500, 500, 500],
        "INT16": [300, 4464, 5, 500, -1, 500],
        "INT32": [300, 70_000, 5, 500, -1, 500],
        "UINT32": [300, 70_000, 5, 500, 500, 500],
        "INT64": [300, 70_000, 2**32 + 5, 500, -1, 500],
    }
)
PYTHON
