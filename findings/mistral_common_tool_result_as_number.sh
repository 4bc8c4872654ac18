#!/usr/bin/env bash
# Guess: the text of a tool's result is in the prompt as it was sent, as a JSON string where the format is JSON.
# Seen: of instruct version 3 a text that happens to be JSON is read and written anew: an identifier loses its
# last digits, 0.10 its zero, 1E400 is Infinity, and an empty result is {}. Version 7 has the text itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target packages --no-deps mistral_common==1.13.1 \
  annotated-types==0.8.0 attrs==26.1.0 certifi==2026.10.19.post1 charset-normalizer==3.5.3 idna==3.20 \
  jsonschema==4.26.0 jsonschema-specifications==2025.9.1 numpy==2.3.5 pillow==13.0.0 pycountry==26.2.16 \
  pydantic==2.14.4 pydantic_core==2.50.5 pydantic-extra-types==2.11.1 referencing==0.37.0 regex==2026.11.19 \
  requests==2.34.2 rpds-py==2026.9.1 sentencepiece==0.2.3 tiktoken==0.14.0 typing_extensions==4.16.0 \
  typing-inspection==0.4.5 urllib3==2.8.0 \
  2>pip.log || { cat pip.log; exit 2; }
PYTHONPATH=packages "${PYTHON:-python3}" - <<'PYTHON'
import sys
from importlib.metadata import version

from mistral_common.protocol.instruct.messages import AssistantMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

print("mistral_common", version("mistral_common"))

ID, TEXTS = "abcdefghi", ("12345678901234567890.5", "0.10", "1E400", "", "007", "plain")


def written(tokenizer, result, begin, end):
    call = ToolCall(id=ID, function=FunctionCall(name="f", arguments="{}"))
    messages = [
        UserMessage(content="hi"),
        AssistantMessage(content=None, tool_calls=[call]),
        ToolMessage(content=result, tool_call_id=ID, name="f"),
    ]
    tool = Tool(function=Function(name="f", parameters={"type": "object", "properties": {}}))
    request = ChatCompletionRequest(messages=messages, tools=[tool])
    prompt = tokenizer.encode_chat_completion(request).text.replace("\u2581", " ")
    return prompt.partition(begin)[2].partition(end)[0].strip()


older, newer = MistralTokenizer.v3(is_tekken=True), MistralTokenizer.v7()
third = [written(older, text, '{"content": ', ', "call_id"') for text in TEXTS]
seventh = [written(newer, text, "[TOOL_CONTENT]", "[/TOOL_RESULTS]") for text in TEXTS]
print("results:", *map(repr, TEXTS))
print("version 3:", *third)
print("version 7:", *map(repr, seventh))
changed = ["1.2345678901234567e+19", "0.1", "Infinity", "{}", '"007"', '"plain"']
sys.exit((third, seventh) != (changed, list(TEXTS)))
PYTHON
