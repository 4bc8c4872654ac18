"""Waits until Triton's engines have nothing under way: `wait_idle.py [AT_MOST_S]` (600).

Run before a pod is stopped, so that streams end by themselves. Idle is what has been so for ten
seconds, since a proxy that is still connected may send more: proxies do not see this wait. Only at
SIGTERM, after it, does the launcher show them that this Triton is draining. Exits 0 when idle, and
when Triton does not answer, for then nothing runs; 1 when the time is over.
"""

from __future__ import annotations

import os
import re
import sys
import time
import urllib.request

# Our engine model's gauge, and that of NVIDIA's C++ backend; the same as in
# proxy/operate/triton_server/server.py, which this script does not need.
UNFINISHED = re.compile(
    r"^(?:engine_requests_unfinished\{[^}]*\}"
    r'|nv_trt_llm_request_metrics\{[^}]*request_type="active"[^}]*\}) (\S+)$',
    re.MULTILINE,
)
QUIET_S = 10.0


def unfinished(exposition: str) -> float:
    """Requests under way, of all models together."""
    return sum(float(value) for value in UNFINISHED.findall(exposition))


def wait(url: str, at_most_s: float, *, quiet_s: float = QUIET_S, every_s: float = 1.0) -> bool:
    """Whether it became idle in time."""
    start = idle_since = time.monotonic()
    while (now := time.monotonic()) - start < at_most_s:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                busy = unfinished(response.read().decode())
        except OSError:
            return True
        if busy:
            idle_since = now
        if now - idle_since >= quiet_s:
            return True
        time.sleep(every_s)
    return False


def main() -> int:
    at_most_s = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    port = os.environ.get("TRITON_METRICS_PORT", "8002")
    return 0 if wait(f"http://127.0.0.1:{port}/metrics", at_most_s) else 1


if __name__ == "__main__":
    sys.exit(main())
