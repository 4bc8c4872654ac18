#!/usr/bin/env bash
# Guess: `format: email` allows a@b.c, as every definition of an address does; a@b may be refused.
# Seen: a@b and a@b.co are allowed, a@b.c is not. The last label needs two letters, but only behind a dot.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages \
  --no-deps xgrammar==0.2.9 apache-tvm-ffi==0.1.15.post2 numpy==1.26.4 pydantic==2.14.3 pydantic-core==2.50.4 \
  typing-inspection==0.4.5 typing-extensions==4.16.0 annotated-types==0.8.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import json
import sys
from importlib.metadata import version
from types import ModuleType


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


def allows(schema, text):
    matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema)))
    return matcher.accept_string(text) and matcher.accept_token(256)


print("xgrammar", version("xgrammar"))

seen = {text: allows({"type": "string", "format": "email"}, f'"{text}"') for text in ("a@b", "a@b.c", "a@b.co")}
print(seen)
sys.exit(list(seen.values()) != [True, False, True])
PYTHON
