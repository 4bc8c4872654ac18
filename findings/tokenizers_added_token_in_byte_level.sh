#!/usr/bin/env bash
# Guess: an added token decodes to its own text, whatever its letters.
# Seen: the ByteLevel decoder reads it as bytes too, if all its characters are in its alphabet: <é> comes back
# as <U+FFFD>, and ĠĊ as a space and a line break. One character outside, such as a space, keeps it whole.
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

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
seen = []
for added in ("<e>", "<é>", "<é x>", "ĠĊ"):
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([added])
    encoding = tokenizer.encode(f"a{added}b")
    seen.append(tokenizer.decode(encoding.ids))
    print("tokenizers", tokenizers.__version__, encoding.tokens, "decodes to", ascii(seen[-1]))
sys.exit(seen != ["a<e>b", "a<\ufffd>b", "a<é x>b", "a \nb"])
PYTHON
