#!/usr/bin/env bash
# Guess: the pieces of DecodeStream, joined, are what decode() returns for the same tokens.
# Seen: a text that ends with the letter U+FFFD, correctly encoded, loses it: the stream takes it for an
# unfinished one and waits for more, and has no method that ends it.
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
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.decoders import DecodeStream

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
ids = tokenizer.encode("ab\ufffd").ids
stream = DecodeStream()
streamed = "".join(stream.step(tokenizer, index) or "" for index in ids)
print("tokenizers", tokenizers.__version__, "decode:", ascii(tokenizer.decode(ids)), "stream:", ascii(streamed))
methods = [name for name in dir(stream) if not name.startswith("_")]
print("methods of the stream:", methods)
sys.exit((tokenizer.decode(ids), streamed, methods) != ("ab\ufffd", "ab", ["step"]))
PYTHON
