#!/usr/bin/env bash
# Guess: letters are escaped as \u0061 neither in keys nor in values, or a key stands for its letters.
# Seen: values have no such escapes, keys do. So where a schema has `a` as an integer and other keys as
# texts, a key that is spelled \u0061 takes a text, and the object that a parser reads does not conform.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages --no-deps llguidance==1.9.1 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import json
import sys
from importlib.metadata import version

from llguidance import LLMatcher, LLTokenizer

tokenizer = LLTokenizer("byte")


def allows(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    assert not matcher.is_error(), matcher.get_error()
    tokens = tokenizer.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


print("llguidance", version("llguidance"))

integer, text = {"type": "integer"}, {"type": "string"}
named = {"properties": {"a": integer}, "additionalProperties": text}
by_pattern = {"patternProperties": {"^a": integer}, "additionalProperties": text}
seen = [
    allows({"type": "string"}, r'"\u0061"'),
    *(
        allows({"type": "object", **rule}, one)
        for rule in (named, by_pattern)
        for one in ('{"a": "x"}', r'{"\u0061": "x"}')
    ),
]
print("a value with an escaped letter:", seen[0])
print("a text for `a`, and for the same key with an escape:", seen[1:3], "by pattern:", seen[3:])
sys.exit(seen != [False, False, True, False, True])
PYTHON
