#!/usr/bin/env bash
# Guess: `const` forces the number of the schema, or is refused where it is too large.
# Seen: from 2**63 on it forces another number, which breaks the schema: 12345678901234567890 becomes
# 1.2345678901234567e+19 in xgrammar and 12345678901234567000 in llguidance. xgrammar 0.2.8 also writes 0.7
# as 0.69999999999999996, the same number in digits that no model was trained on; 0.2.9 writes 0.7.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
install() { "${PYTHON:-python3}" -m pip install --quiet --no-compile --no-deps --target "$@" 2>pip.log || { cat pip.log; exit 2; }; }
install packages llguidance==1.9.1 apache-tvm-ffi==0.1.15.post2 numpy==1.26.4 \
  pydantic==2.14.3 pydantic-core==2.50.4 typing-inspection==0.4.5 typing-extensions==4.16.0 annotated-types==0.8.0
install old xgrammar==0.2.8
install new xgrammar==0.2.9
cat >forced.py <<'PYTHON'
import json
import sys
from importlib.metadata import version
from types import ModuleType

from llguidance import LLMatcher, LLTokenizer


class Absent(ModuleType):
    """Stands for a package of which xgrammar needs only names when it is imported."""

    __path__ = ()

    def __getattr__(self, name):
        return type(name, (), {"__init__": lambda *_, **__: None})


sys.modules["torch"] = None
import tvm_ffi

sys.modules |= {name: Absent(name) for name in ("torch", "transformers")}
import xgrammar

vocabulary = [bytes([byte]) for byte in range(256)] + [b"</s>"]
compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[256]))
for const in (0.7, 12345678901234567890):
    schema = json.dumps({"const": const})
    text = xgrammar.GrammarMatcher(compiler.compile_json_schema(schema)).find_jump_forward_string()
    print("xgrammar", version("xgrammar"), const, "->", text)
    text = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_json_schema(schema)).compute_ff_bytes().decode()
    print("llguidance", version("llguidance"), const, "->", text)
PYTHON
for version in old new; do PYTHONPATH=$version:packages "${PYTHON:-python3}" forced.py; done | sort -u | tee seen
diff seen - <<'SEEN'
llguidance 1.9.1 0.7 -> 0.7
llguidance 1.9.1 12345678901234567890 -> 12345678901234567000
xgrammar 0.2.8 0.7 -> 0.69999999999999996
xgrammar 0.2.8 12345678901234567890 -> 1.2345678901234567e+19
xgrammar 0.2.9 0.7 -> 0.7
xgrammar 0.2.9 12345678901234567890 -> 1.2345678901234567e+19
SEEN
