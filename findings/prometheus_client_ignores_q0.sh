#!/usr/bin/env bash
# Guess: `Accept: text/plain, application/openmetrics-text;q=0` gets the text format: q=0 means "not acceptable".
# Seen: it gets OpenMetrics. The weights of the header are not read; the word alone decides.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps prometheus-client==0.26.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from importlib.metadata import version

from prometheus_client.exposition import choose_encoder

seen = []
for accept in (
    "text/plain",
    "text/plain;q=1, application/openmetrics-text;q=0.1",
    "text/plain, application/openmetrics-text;q=0",
):
    seen.append(choose_encoder(accept)[1].partition(";")[0])
    print("prometheus-client", version("prometheus-client"), accept, "->", seen[-1])
sys.exit(seen != ["text/plain", "application/openmetrics-text", "application/openmetrics-text"])
PYTHON
