#!/bin/sh
# A chat with curl: first the whole answer, then the same as a stream.
set -eu
URL="${OPENAI_BASE_URL:-http://127.0.0.1:9000/v1}"

ask() {
  curl --fail-with-body --silent --show-error --no-buffer "$URL/chat/completions" \
    -H 'Content-Type: application/json' -d "$1"
  echo
}

ask '{"model": "demo", "messages": [{"role": "user", "content": "Hello! Who are you?"}]}'
ask '{"model": "demo", "stream": true, "messages": [{"role": "user", "content": "Hello! Who are you?"}]}'
