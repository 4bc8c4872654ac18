#!/usr/bin/env bash
# Guess: one observation of NaN counts in the bucket +Inf, which holds all observations, or is refused.
# Seen: it is in no bucket and not in the count, but in the sum, which is NaN from then on: rates of the sum,
# and so every average, are lost until the process ends.
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

from prometheus_client import CollectorRegistry, Histogram

registry = CollectorRegistry()
histogram = Histogram("seconds", "Seconds.", buckets=[1], registry=registry)
histogram.observe(float("nan"))
histogram.observe(0.5)
seen = [
    f"{sample.name}{sample.labels.get('le', '')} {sample.value}"
    for sample in histogram.collect()[0].samples
    if not sample.name.endswith("_created")
]
print("prometheus-client", version("prometheus-client"), "after NaN and 0.5:", seen)
sys.exit(seen != ["seconds_bucket1.0 1.0", "seconds_bucket+Inf 1.0", "seconds_count 1.0", "seconds_sum nan"])
PYTHON
