#!/bin/sh
# NVIDIA's perf_analyzer straight on the ensemble, without the proxy. docs/performance.md says where to get it.
set -eu
cd "$(dirname "$0")/.."
exec perf_analyzer -m demo -i grpc -u "${TRITON:-127.0.0.1:8001}" --async --streaming \
  --input-data tests/bench/perf_analyzer.json --concurrency-range 4 --request-count 40
