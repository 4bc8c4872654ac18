"""Requests of the cost fuzzer: where it starts from, and how it changes them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RENDER, TOKENIZE, DETOKENIZE = f"{CHAT}/render", "/tokenize", "/detokenize"
SOCKET, EMBEDDINGS = f"{CHAT}/ws", "/v1/embeddings"
HI = {"role": "user", "content": "hi"}
MOST_BYTES = 200_000
SCRAPS = (
    *("[", "]", "{", "}", "(", ")", "\\[", "\\", "\n", " ", '"', "/", "|", "*", "+", "?", "^", "$"),
    *("(a|a)*", "(a{500}){500}", "(?=a)", "[^a]", "[a-z]", "\\d", "\\p{L}", ".*", "{1,999}"),
    *(
        "root ::= ",
        "start: ",
        "%import common.A\n",
        "%ignore ",
        "// x\n",
        "# x\n",
        '"a" | ',
        "~1..9",
    ),
    *("{{", "{%", "%}", "{% for i in range(9) %}", "{{ m }}", "\U0001f600", "\u00e9", "\ud7ff"),
    *("\u0300", "\u0327", "\u0300" * 9 + "\u0327" * 9, "\ufdfa", "\uac00"),
    *("<tool_call>", "<think>", "</tool_call>", "a", "aaaaaaaa", "0", "1e400"),
)
KEYWORDS: tuple[dict[str, Any], ...] = (
    {"oneOf": [{"const": "a"}, {"const": "b"}]},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"allOf": [{"type": "object"}, {"required": ["a"]}]},
    {"pattern": "a{500}"},
    {"enum": ["a", "b"]},
    {"$ref": "#"},
    {"properties": {"a": {"type": "string"}}},
    {"patternProperties": {"^a": {"type": "string"}}},
    {"propertyNames": {"pattern": "^a"}},
    {"prefixItems": [{"type": "integer"}]},
    {"minimum": -(10**15), "maximum": 10**15, "type": "integer"},
    {"type": "string", "format": "date-time"},
    {"not": {"type": "string"}},
    {"if": {"type": "object"}, "then": {"required": ["a"]}},
    {"minItems": 5, "items": {"type": "array"}},
)


@dataclass(frozen=True, slots=True)
class Case:
    """kind: the seed that it comes from. body: JSON; text: a body that is no JSON, in its place."""

    kind: str
    path: str
    body: Any = None
    text: str | None = None

    @property
    def data(self) -> bytes:
        if self.text is not None:
            return self.text.encode("utf-8", "surrogatepass")
        return json.dumps(self.body).encode()

    def written(self) -> str:
        return json.dumps(asdict(self))


def _chat(**fields: Any) -> dict[str, Any]:
    return {"model": "demo", "messages": [HI], "max_tokens": 4, **fields}


def _tool(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def seeds() -> Iterator[Case]:
    """One of each kind of input that a caller can make costly."""
    for number, keyword in enumerate(KEYWORDS):
        yield Case(f"schema {number}", CHAT, _chat(guided_json=keyword))
    yield Case("grammar", CHAT, _chat(guided_grammar='root ::= s\ns ::= s s | "a" | ""'))
    yield Case("newlines", CHAT, _chat(guided_grammar="\n\n root"))
    yield Case("lark", CHAT, _chat(guided_grammar='start: "a" /[b-z]/\n%import common.INT\n'))
    yield Case("regex", CHAT, _chat(guided_regex="(a|b)*[c-f]{3}"))
    yield Case("choice", CHAT, _chat(guided_choice=["a", "b"]))
    tag = {"begin": "<t>", "schema": OBJECT, "end": "</t>"}
    tags = {"type": "structural_tag", "structures": [tag], "triggers": ["<t"]}
    yield Case("tag", CHAT, _chat(response_format=tags))
    yield Case("template", CHAT, _chat(chat_template="{% for m in messages %}{{ m }}{% endfor %}"))
    yield Case("kwargs", CHAT, _chat(chat_template_kwargs={"a": [{"b": "c"}]}))
    yield Case("documents", CHAT, _chat(documents=[{"title": "a", "text": "b"}]))
    yield Case("stops", CHAT, _chat(stop=["ab\U0001f600", "abab"], n=4))
    yield Case("tools", CHAT, _chat(tools=[_tool(OBJECT)], tool_choice="required"))
    yield Case("messages", CHAT, _chat(messages=[HI, {"role": "assistant", "content": "a"}, HI]))
    answered = [HI, {"role": "assistant", "tool_calls": [CALL]}]
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    yield Case("calls", CHAT, _chat(messages=[*answered, result]))
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    yield Case("parts", CHAT, _chat(messages=[{"role": "user", "content": parts}]))
    yield Case("metadata", CHAT, _chat(metadata={"a": "b"}, user="c"))
    yield Case("bias", CHAT, _chat(logit_bias={"5": 1}, bad_words=["a"], allowed_token_ids=[1, 2]))
    yield Case("logprobs", CHAT, _chat(n=4, logprobs=True, top_logprobs=5))
    yield Case("stream", CHAT, _chat(stream=True, stop=["a"], n=2))
    marks = "a" + "\u0300" * 5_000 + "\u0327" * 5_000  # to normalize it takes quadratic time
    yield Case("marks", TEXT, {"model": "demo", "prompt": marks})
    yield Case("prompts", TEXT, {"model": "demo", "prompt": ["a", "b"], "echo": True})
    yield Case("inputs", EMBEDDINGS, {"model": "demo", "input": ["a", "b"], "dimensions": 2})
    yield Case("ids", EMBEDDINGS, {"model": "demo", "input": [[1, 2], [3]]})
    yield Case("rerank", "/v1/rerank", {"model": "demo", "query": "a", "documents": ["b", "c"]})
    yield Case("score", "/v1/score", {"model": "demo", "text_1": ["a"], "text_2": ["b", "c"]})
    yield Case("render", RENDER, _chat(guided_json={"oneOf": [{"const": 1}, {"const": 2}]}))
    yield Case("tokenize", TOKENIZE, {"messages": [HI], "tools": [_tool(OBJECT)]})
    yield Case("detokenize", DETOKENIZE, {"tokens": [5, 6]})
    yield Case("plain", "/chat/json", {"messages": [HI]})
    yield Case("socket", SOCKET, _chat(request_id="a"))
    yield Case("socket cancel", SOCKET, {"type": "cancel"})
    yield Case("json arrays", CHAT, None, '{"model":"demo","x":[[1],[1],[1]]}')
    yield Case("json escapes", CHAT, None, '{"model":"demo","user":"\\u00e9\\ud83d\\ude00"}')
    yield Case("json keys", CHAT, None, '{"a":1,"a":1,"b":1.5e10}')
    yield Case("json socket", SOCKET, None, '{"x":[[1],[1],[1]]}')


def mutated(case: Case, others: list[Case], chance: random.Random) -> Case:
    """A case that differs in one to four places; as it was where that would be too large."""
    changed = case
    for _ in range(chance.choice((1, 1, 2, 4))):
        changed = _once(changed, others, chance)
        if not _fits(changed):  # seen after each change: they multiply
            return case
    return changed


def _fits(case: Case) -> bool:
    try:
        return len(case.data) <= MOST_BYTES
    except (RecursionError, ValueError):  # too deep for json.dumps, or an unprintable integer
        return False


def _once(case: Case, others: list[Case], chance: random.Random) -> Case:
    if case.text is not None:
        return Case(case.kind, case.path, None, _text(case.text, chance))
    body = copy.deepcopy(case.body)
    if not isinstance(body, dict) or not body:
        return case
    if chance.random() < 0.1 and (other := chance.choice(others)).text is None:
        body.update(copy.deepcopy(other.body) if isinstance(other.body, dict) else {})
        return Case(case.kind, case.path, body)
    holder, key = chance.choice([place for place in _places(body) if place[1] != "model"])
    holder[key] = _value(holder[key], chance)
    return Case(case.kind, case.path, body)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Up to a few thousand places of a value, as container and key."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 3_000:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def _value(value: Any, chance: random.Random) -> Any:
    kind = chance.random()
    if kind < 0.08:
        return {"a": value} if chance.random() < 0.5 else [value]
    if kind < 0.14:
        return copy.deepcopy(chance.choice(KEYWORDS))
    match value:
        case str():
            return _text(value, chance)
        case bool():
            return not value
        case int() | float():
            return chance.choice((0, 1, 20, 128, 2**31, 10**15, -value, value * 10 + 1))
        case list() if value:
            part = value[chance.randrange(len(value)) :]
            return value + _numbered(part * chance.choice((1, 4, 32, 256)), chance)
        case dict():
            return _wider(value, chance)
        case _:
            return chance.choice(SCRAPS)


def _numbered(items: list[Any], chance: random.Random) -> list[Any]:
    """Copies, at times with numbers in their texts so that they differ."""
    if chance.random() < 0.5:
        return copy.deepcopy(items)
    return [_renamed(item, number) for number, item in enumerate(items)]


def _renamed(value: Any, number: int) -> Any:
    match value:
        case str():
            return f"{value}{number}"
        case dict():
            return {
                key: _renamed(one, number) if key in _FREE else one for key, one in value.items()
            }
        case _:
            return value


_FREE = ("const", "name", "content", "pattern", "id", "text", "begin", "arguments")


def _wider(value: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """More keys, of the same values or of other keywords."""
    if not value or chance.random() < 0.4:
        return {**value, **copy.deepcopy(chance.choice(KEYWORDS))}
    key = chance.choice(list(value))
    count = chance.choice((1, 8, 64, 512))
    return {**value, **{f"{key}{number}": copy.deepcopy(value[key]) for number in range(count)}}


def _text(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    end = min(len(text), at + chance.choice((1, 2, 5, 20)))
    match chance.randrange(5):
        case 0:
            return text[:at] + chance.choice(SCRAPS) * chance.choice((1, 3, 50, 2_000)) + text[at:]
        case 1:
            return text[:at] + text[at:end] * chance.choice((2, 16, 256, 4_096)) + text[end:]
        case 2:
            return text[:at] + text[end:]
        case 3:
            return f"({text}){chance.choice(('*', '+', '?', '{9}', '{500}', '|a'))}"
        case _:
            return text * chance.choice((2, 8, 64))
