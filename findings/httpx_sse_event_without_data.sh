#!/usr/bin/env bash
# Guess: an event without a `data` line is not dispatched, as the standard says, and as other parsers do.
# Seen: `event: ping` and `id: 5` alone are events with empty data, and behind an `id` even each comment is one,
# so a client that parses each event's data as JSON fails at keep-alives that other clients never see.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  httpx-sse==0.4.3 httpx==0.28.1 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from importlib.metadata import version

import httpx
from httpx_sse import connect_sse


def answer(request):
    return httpx.Response(
        200, headers={"content-type": "text/event-stream"}, text="event: ping\n\nid: 5\n\n: note\n\ndata: 1\n\n"
    )


client = httpx.Client(transport=httpx.MockTransport(answer))
with connect_sse(client, "GET", "http://localhost/") as source:
    seen = [(event.event, event.data, event.id) for event in source.iter_sse()]
print("httpx-sse", version("httpx-sse"), seen)
sys.exit(seen != [("ping", "", ""), ("message", "", "5"), ("message", "", "5"), ("message", "1", "5")])
PYTHON
