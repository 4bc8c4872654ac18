#!/usr/bin/env bash
# Guess: a BPE vocabulary without an unknown token and without bytes refuses a letter that it does not have.
# Seen: the letter is left out, so "5€" is encoded as "5", and nothing tells the caller; the offsets behind
# it are wrong: of "5€ e" the space and the "e" are both said to be at 1 to 2, where the lost letter is.
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
from tokenizers import Tokenizer, models

tokenizer = Tokenizer(models.BPE({"5": 0, " ": 1, "e": 2}, []))
encoding = tokenizer.encode("5€ e")
print("tokenizers", tokenizers.__version__, "encodes '5€ e' as", encoding.tokens, encoding.offsets)
sys.exit((encoding.tokens, encoding.offsets) != (["5", " ", "e"], [(0, 1), (1, 2), (1, 2)]))
PYTHON
