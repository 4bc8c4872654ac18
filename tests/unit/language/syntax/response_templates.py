"""Response templates of our own for the families, as their checkpoints might carry them."""

from __future__ import annotations

from typing import Any

NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}


def template(calls: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    found = {"content": {}, **fields}
    if calls is not None:
        found["tool_calls"] = {"repeats": True, **calls}
    for name, field in found.items():
        found[name] = {key: value for key, value in field.items() if value is not None}
    return {"defaults": {"role": "assistant"}, "start_anchor": "<|assistant|>", "fields": found}


def objects(open: str | None, close: str | list[str] | None, **more: Any) -> dict[str, Any]:
    """Calls as JSON objects."""
    call = {"type": "function", "function": "{content}"}
    return template({"open": open, "close": close, "content": "json", "transform": call, **more})


def listed(open: str, close: str | None, name: str = "name", arguments: str = "arguments"):
    """Calls as a list of JSON objects."""
    function = {"name": f"{{{name}}}", "arguments": f"{{{arguments}}}"}
    call = {"type": "function", "function": function}
    return objects(open, close, transform=call, transform_each=True, repeats=False)


def named(open: str, close: str, **more: Any) -> dict[str, Any]:
    """Calls with the name in their mark."""
    found = {"open_pattern": open, "close_pattern": close, "content": "json", "transform": NAMED}
    return template({**found, **more})


def elements(open: str, close: str, tag: str, *, strings: bool = False) -> dict[str, Any]:
    parser = None if strings else {"name": "json", "args": {"allow_non_json": True}}
    args = {"tag_pattern": tag, "value_parser": parser}
    return named(open, close, content="xml-inline", content_args=args)


def gemma(open: str, close: str, quote: str) -> dict[str, Any]:
    dialect = {"unquoted_keys": True, "string_delims": [[quote, quote]]}
    return named(open, close, content_args=dialect)


QWEN = elements(
    r"<tool_call>\s*<function=(?P<name>[^>\n]+)>",
    r"</function>\s*</tool_call>",
    r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>",
)
TEMPLATES: dict[str, dict[str, Any]] = {
    "hermes": objects("<tool_call>", "</tool_call>"),
    "exaone": objects("<tool_call>", "</tool_call>"),
    "generic": objects("<function_call>", "</function_call>"),
    "granite_20b_fc": objects("<function_call>", None),
    "gigachat3": objects("function call<|role_sep|>", "<|message_sep|>"),
    "gigachat31": objects("<|function_call|>", "<|message_sep|>"),
    "granite": listed("<|tool_call|>", None),
    "jamba": listed("<tool_calls>", "</tool_calls>"),
    "nemotron_v2": listed("<TOOLCALL>", "</TOOLCALL>"),
    "cohere": listed("<|START_ACTION|>", "<|END_ACTION|>", "tool_name", "parameters"),
    "lfm2": template(
        {
            "open": "<|tool_call_start|>",
            "close": "<|tool_call_end|>",
            "content": "python-call-list",
            "transform_each": True,
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{arguments}"},
            },
            "repeats": False,
        }
    ),
    "deepseek_v3": named(
        r"(?:<｜tool▁calls▁begin｜>)?\n?<｜tool▁call▁begin｜>function<｜tool▁sep｜>(?P<name>[^\n]+)"
        r"\n```json\n",
        r"\n```<｜tool▁call▁end｜>(?:<｜tool▁calls▁end｜>)?",
    ),
    "deepseek_v31": named(
        r"(?:<｜tool▁calls▁begin｜>)?<｜tool▁call▁begin｜>(?P<name>[^<]+?)<｜tool▁sep｜>",
        r"<｜tool▁call▁end｜>(?:<｜tool▁calls▁end｜>)?",
    ),
    "gemma4": gemma(r"<\|tool_call>call:(?P<name>[\w.\-]+)", "<tool_call\\|>", '<|"|>'),
    "functiongemma": gemma(
        r"<start_function_call>call:(?P<name>[\w.\-]+)", "<end_function_call>", "<escape>"
    ),
    "qwen3_coder": QWEN,
    "qwen3_xml": QWEN,
    "mimo": elements(
        r"<tool_call><function=(?P<name>[^>]+)>",
        r"</function></tool_call>",
        r"<parameter=(?P<key>[^>]+)>(?P<value>.*?)</parameter>",
    ),
    "seed_oss": elements(
        r"<seed:tool_call>\s*<function=(?P<name>[^>\n]+)>",
        r"</function>\s*</seed:tool_call>",
        r"<parameter=(?P<key>[^>\n]+)>(?P<value>.*?)</parameter>",
    ),
    "glm45": elements(
        r"<tool_call>(?P<name>[^\s<]+)\s*",
        r"</tool_call>",
        r"<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>",
    ),
    "hy3": elements(
        r"(?:<tool_calls:opensource>\s*)?<tool_call:opensource>(?P<name>[^<\n]+)"
        r"<tool_sep:opensource>",
        r"</tool_call:opensource>(?:\s*</tool_calls:opensource>)?",
        r"<arg_key:opensource>(?P<key>[^<]+)</arg_key:opensource>\s*"
        r"<arg_value:opensource>(?P<value>.*?)</arg_value:opensource>",
    ),
    "minimax_m2": elements(
        r'(?:<minimax:tool_call>\s*)?<invoke name="(?P<name>[^"]+)">',
        r"</invoke>(?:\s*</minimax:tool_call>)?",
        r'<parameter name="(?P<key>[^"]+)">(?P<value>.*?)</parameter>',
        strings=True,
    ),
    "muse_glimmer": elements(
        r'<atem:function_calls>\s*<atem:invoke name="(?P<name>[^"]+)">',
        r"</atem:invoke>\s*</atem:function_calls>",
        r'<atem:parameter name="(?P<key>[^"]+)">(?P<value>.*?)</atem:parameter>',
    ),
}
# What a response template has no words for.
CANNOT = {
    **dict.fromkeys(
        ("llama3_json", "llama4_json", "xlam", "json_list", "pythonic"), "calls without a mark"
    ),
    "llama4_pythonic": "marks that may be missing",
    "phi4_mini_json": "a word as a mark",
    "internlm": "two marks at a call's begin",
    "mistral": "two forms, by the model's version",
    "apertus": "a call's name is a key",
    "harmony": "free words in a call's header",
    "kimi_k2": "a call's number, and its id",
    "solar_open": "a call's id",
    "deepseek_v32": "an element says its value's type",
    "kimi_k3": "an element says its value's type",
    "minimax_m3": "elements in elements",
    "cohere_xml": "elements in elements",
    "minicpm5": "values in CDATA",
}


def thoughts(
    open: str | list[str] | None, close: str | list[str] | None, **fields: Any
) -> dict[str, Any]:
    content = fields.pop("content", {})
    return template(thinking={"open": open, "close": close, **fields}, content=content)


THINK = thoughts(["<think>", "◁think▷"], ["</think>", "◁/think▷"])
REASONING: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("qwen3", "deepseek_r1", "glm45", "kimi", "nemotron", "minimax"), THINK),
    "seed_oss": thoughts("<seed:think>", "</seed:think>"),
    "hy3": thoughts("<think:opensource>", "</think:opensource>"),
    "mistral": thoughts("[THINK]", "[/THINK]", repeats=True),
    "apertus": thoughts("<|inner_prefix|>", "<|inner_suffix|>", repeats=True),
    "gemma4": thoughts("<|channel>thought\n", "<channel|>", repeats=True),
    "cohere": thoughts(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        repeats=True,
        content={
            "open": ["<|START_RESPONSE|>", "<|START_TEXT|>"],
            "close": ["<|END_RESPONSE|>", "<|END_TEXT|>"],
        },
    ),
    "kimi_k3": thoughts(
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        content={
            "open": "<|open|>response<|sep|>",
            "close": ["<|close|>response<|sep|>", "<|close|>message<|sep|>"],
        },
    ),
    "granite": thoughts(
        ["Here is my thought process:", "Here's my thought process:", "<think>"],
        ["Here is my response:", "Here's my response:", "</think>"],
    ),
    "solar_open": thoughts(
        "<|think|>",
        "<|end|>",
        content={"open": ["<|begin|>assistant", "<|content|>"], "close": "<|end|>"},
    ),
    "minimax_m3": thoughts("<mm:think>", "</mm:think>", content={"close": "</mm:think>"}),
}
CANNOT_REASON = {
    "harmony": "messages with headers",
    "muse_glimmer": "messages with headers",
}
