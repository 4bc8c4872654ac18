#!/usr/bin/env bash
# Guess: of the byte tokens `a`, `b`, FF and `c` only FF, which is no UTF-8, decodes to U+FFFD.
# Seen: all four do. With the ByteFallback decoder (Llama 2, Gemma, Mistral) a run of byte tokens is text as a
# whole or not at all, so one stray byte takes the letters next to it along.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps tokenizers==0.23.3 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys

import tokenizers
from tokenizers import Tokenizer, decoders, models

vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
fallback = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
fallback.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
seen = [fallback.decode(list(data)) for data in (b"abc", b"ab\xffc")]
print("tokenizers", tokenizers.__version__, "decodes the byte tokens of abc and ab<FF>c to", seen)
print("Python decodes the second to", b"ab\xffc".decode(errors="replace"))
sys.exit(seen != ["abc", "\ufffd" * 4])
PYTHON
