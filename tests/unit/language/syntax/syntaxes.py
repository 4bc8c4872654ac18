"""Calls written in each family's syntax, as its models write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Call = dict[str, Any]


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def objects(calls: list[Call], key: str = "arguments") -> list[str]:
    return [f'{{"name": {dumped(c["name"])}, "{key}": {dumped(c["arguments"])}}}' for c in calls]


def listed(calls: list[Call]) -> str:
    return f"[{', '.join(objects(calls))}]"


def cohere(calls: list[Call]) -> str:
    """As in Cohere's templates (cohere-ai/melody, 333ae6a5, cmd3-v1 and cmd4-v1)."""
    lines = [
        f'    {{"tool_call_id": "{number}", "tool_name": {dumped(call["name"])}, '
        f'"parameters": {dumped(call["arguments"])}}}'
        for number, call in enumerate(calls)
    ]
    return "<|START_ACTION|>[\n" + ",\n".join(lines) + "\n]<|END_ACTION|>"


def exaone(calls: list[Call]) -> str:
    """As xgrammar 0.2.8 describes EXAONE 4.0."""
    return "\n".join(f"<tool_call>{text}</tool_call>" for text in objects(calls))


def hermes(calls: list[Call]) -> str:
    return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in objects(calls))


def internlm(calls: list[Call]) -> str:
    start, end = "<|action_start|> <|plugin|>\n", "<|action_end|>"
    return "\n".join(f"{start}{text}{end}" for text in objects(calls, "parameters"))


def mistral(calls: list[Call]) -> str:
    if len(calls) == 2:
        return f"[TOOL_CALLS] {listed(calls)}"
    return "".join(f"[TOOL_CALLS]{c['name']}[ARGS]{dumped(c['arguments'])}" for c in calls)


def pythonic(calls: list[Call]) -> str:
    return f"[{', '.join(map(python_call, calls))}]"


def python_call(call: Call) -> str:
    keywords = ", ".join(f"{key}={value!r}" for key, value in call["arguments"].items())
    return f"{call['name']}({keywords})"


def llama4_pythonic(calls: list[Call]) -> str:
    text = pythonic(calls)
    return text if len(calls) == 2 else f"<|python_start|>{text}<|python_end|>"


def bare(value: Any) -> str:
    """As the chat templates of XML-like families write a value."""
    return value if isinstance(value, str) else dumped(value)


def qwen3_coder(calls: list[Call]) -> str:
    def one(call: Call) -> str:
        lines = [
            f"<parameter={key}>\n{bare(value)}\n</parameter>"
            for key, value in call["arguments"].items()
        ]
        inner = "\n".join([f"<function={call['name']}>", *lines, "</function>"])
        return f"<tool_call>\n{inner}\n</tool_call>"

    return "\n".join(map(one, calls))


def mimo(calls: list[Call]) -> str:
    """As xgrammar 0.2.8 describes MiMo V2.6, and SGLang's detector (022b205d) reads it."""

    def one(call: Call) -> str:
        values = "".join(
            f"<parameter={k}>{bare(v)}</parameter>" for k, v in call["arguments"].items()
        )
        return f"<tool_call><function={call['name']}>{values}</function></tool_call>"

    return "".join(map(one, calls))


def kimi_k3(calls: list[Call]) -> str:
    """As in SGLang's detector (0396a052) and vLLM's parser (2d956748)."""
    kinds = {str: "string", bool: "boolean", int: "number", float: "number"}
    kinds |= {list: "array", dict: "object", type(None): "null"}

    def argument(key: str, value: Any) -> str:
        head = f'<|open|>argument key="{key}" type="{kinds[type(value)]}"<|sep|>'
        return f"{head}{bare(value)}<|close|>argument<|sep|>"

    def one(number: int, call: Call) -> str:
        values = "".join(argument(key, value) for key, value in call["arguments"].items())
        head = f'<|open|>call tool="{call["name"]}" index="{number}"<|sep|>'
        return f"{head}{values}<|close|>call<|sep|>"

    inner = "".join(one(number, call) for number, call in enumerate(calls, 1))
    return f"<|open|>tools<|sep|>{inner}<|close|>tools<|sep|>"


def minimax_m3(calls: list[Call]) -> str:
    """As in SGLang's detector (00ca197b)."""
    space = "]<]minimax[>["

    def element(key: str, value: Any) -> str:
        return f"{space}<{key}>{content(value)}{space}</{key}>"

    def content(value: Any) -> str:
        if isinstance(value, dict):
            return "".join(element(key, one) for key, one in value.items())
        if isinstance(value, list):
            return "".join(element("item", one) for one in value)
        return bare(value)

    inner = "".join(
        f'{space}<invoke name="{call["name"]}">{content(call["arguments"])}{space}</invoke>\n'
        for call in calls
    )
    return f"{space}<tool_call>\n{inner}{space}</tool_call>"


def cohere_xml(calls: list[Call]) -> str:
    """As in cohere-ai/melody's nested filter (08f8b2dc) and xgrammar 0.2.8."""

    def element(named: str, value: Any) -> str:
        kinds = {str: "raw", dict: "dict", list: "list"}
        kind = kinds.get(type(value), "json")
        return f'<cofl:value {named}type="{kind}">{content(value)}</cofl:value>'

    def content(value: Any) -> str:
        if isinstance(value, dict):
            return "".join(element(f'name="{key}" ', one) for key, one in value.items())
        if isinstance(value, list):
            return "".join(element("", one) for one in value)
        return bare(value)

    inner = "".join(
        f'<cofl:tool_call id="{number}" name="{call["name"]}">{content(call["arguments"])}'
        "</cofl:tool_call>"
        for number, call in enumerate(calls)
    )
    return f"<cofl:tool_calls>{inner}</cofl:tool_calls>"


def minimax_m2(calls: list[Call]) -> str:
    def one(call: Call) -> str:
        lines = [
            f'<parameter name="{key}">{bare(value)}</parameter>'
            for key, value in call["arguments"].items()
        ]
        return "\n".join([f'<invoke name="{call["name"]}">', *lines, "</invoke>"])

    inner = "\n".join(map(one, calls))
    return f"<minimax:tool_call>\n{inner}\n</minimax:tool_call>"


def glm45(calls: list[Call]) -> str:
    def one(call: Call) -> str:
        lines = [
            f"<arg_key>{key}</arg_key>\n<arg_value>{bare(value)}</arg_value>"
            for key, value in call["arguments"].items()
        ]
        return "\n".join([f"<tool_call>{call['name']}", *lines, "</tool_call>"])

    return "\n".join(map(one, calls))


def seed_oss(calls: list[Call]) -> str:
    """As in Seed-OSS' template."""

    def one(call: Call) -> str:
        lines = [f"<parameter={k}>{bare(v)}</parameter>" for k, v in call["arguments"].items()]
        inner = "\n".join([f"<function={call['name']}>", *lines, "</function>"])
        return f"<seed:tool_call>\n{inner}\n</seed:tool_call>"

    return "\n".join(map(one, calls))


def hy3(calls: list[Call]) -> str:
    """As in Hy3's template."""
    inner = glm45(calls).replace("<tool_call>", "").split("\n</tool_call>")
    marked = [
        f"<tool_call>{one.strip()}".replace(call["name"], f"{call['name']}<tool_sep>", 1)
        for one, call in zip(inner, calls, strict=False)
    ]
    lines = "\n".join(f"{one}\n</tool_call>" for one in marked)
    text = f"<tool_calls>\n{lines}\n</tool_calls>"
    names = ("tool_calls", "tool_call", "tool_sep", "arg_key", "arg_value")
    for name in names:
        text = text.replace(f"{name}>", f"{name}:opensource>")
    return text


def minicpm5(calls: list[Call]) -> str:
    """As in MiniCPM5's template."""

    def value(one: Any) -> str:
        has_marks = isinstance(one, str) and any(char in one for char in "<&\n")
        return f"<![CDATA[{one}]]>" if has_marks else bare(one)

    def call(one: Call) -> str:
        values = "".join(
            f'<param name="{key}">{value(val)}</param>' for key, val in one["arguments"].items()
        )
        return f'<function name="{one["name"]}">{values}</function>'

    return "".join(map(call, calls))


def solar_open(calls: list[Call]) -> str:
    """As in Solar Open's template."""
    inner = "".join(
        f"<|tool_call:begin|>a1b2c3d4e{number}<|tool_call:name|>{call['name']}"
        f"<|tool_call:args|>{dumped(call['arguments'])}<|tool_call:end|>"
        for number, call in enumerate(calls)
    )
    return f"<|tool_calls|>{inner}<|calls|>"


def apertus(calls: list[Call]) -> str:
    """As in Apertus' template."""
    inner = ", ".join(f"{{{dumped(c['name'])}: {dumped(c['arguments'])}}}" for c in calls)
    return f"<|tools_prefix|>[{inner}]<|tools_suffix|>"


def deepseek(one: Callable[[Call], str]) -> Callable[[list[Call]], str]:
    def rendered(calls: list[Call]) -> str:
        begin, end = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
        inner = "\n".join(f"{begin}{one(call)}{end}" for call in calls)
        return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"

    return rendered


def deepseek_v3(call: Call) -> str:
    fence = f"```json\n{dumped(call['arguments'])}\n```"
    return f"function<｜tool▁sep｜>{call['name']}\n{fence}"


def deepseek_v31(call: Call) -> str:
    return f"{call['name']}<｜tool▁sep｜>{dumped(call['arguments'])}"


def deepseek_v32(calls: list[Call]) -> str:
    def parameter(key: str, value: Any) -> str:
        is_string = "true" if isinstance(value, str) else "false"
        begin = f'<｜DSML｜parameter name="{key}" string="{is_string}">'
        return f"{begin}{bare(value)}</｜DSML｜parameter>"

    def one(call: Call) -> str:
        lines = [parameter(key, value) for key, value in call["arguments"].items()]
        begin = f'<｜DSML｜invoke name="{call["name"]}">'
        return "\n".join([begin, *lines, "</｜DSML｜invoke>"])

    inner = "\n".join(map(one, calls))
    return f"<｜DSML｜function_calls>\n{inner}\n</｜DSML｜function_calls>"


def kimi_k2(calls: list[Call]) -> str:
    inner = "".join(
        f"<|tool_call_begin|>functions.{call['name']}:{number}"
        f"<|tool_call_argument_begin|>{dumped(call['arguments'])}<|tool_call_end|>"
        for number, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def harmony(calls: list[Call]) -> str:
    def one(call: Call) -> str:
        head = f"<|channel|>commentary to=functions.{call['name']} <|constrain|>json"
        return f"{head}<|message|>{dumped(call['arguments'])}<|call|>"

    return "<|start|>assistant".join(map(one, calls))


def gemma(begin: str, quote: str, end: str) -> Callable[[list[Call]], str]:
    def value_of(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, dict):
            return f"{{{','.join(f'{key}:{value_of(one)}' for key, one in value.items())}}}"
        if isinstance(value, list):
            return f"[{','.join(map(value_of, value))}]"
        return dumped(value)

    def rendered(calls: list[Call]) -> str:
        return "".join(f"{begin}call:{c['name']}{value_of(c['arguments'])}{end}" for c in calls)

    return rendered


def muse_glimmer(calls: list[Call]) -> str:
    """As in Muse Glimmer's template, without headers."""

    def one(call: Call) -> str:
        values = "".join(
            f'<atem:parameter name="{key}">{bare(value)}</atem:parameter>\n'
            for key, value in call["arguments"].items()
        )
        inner = f'<atem:invoke name="{call["name"]}">\n{values}</atem:invoke>'
        return f"<atem:function_calls>\n{inner}\n</atem:function_calls>"

    return "".join(map(one, calls))


JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
JSON_TYPES |= {list: "array", dict: "object"}


def is_beside_its_schema(call: Call, tools: dict[str, Any]) -> bool:
    """Values of another type than the schema says: bare text cannot tell."""
    properties = tools[call["name"]].get("properties", {})
    return any(
        properties.get(key, {}).get("type") != JSON_TYPES.get(type(value))
        for key, value in call["arguments"].items()
    )


def is_deeply_beside(call: Call, tools: dict[str, Any]) -> bool:
    """Whether a value, or one inside it, is empty or has another type than its schema says."""

    def differs(value: Any, schema: Any) -> bool:
        if schema.get("type") != JSON_TYPES.get(type(value)) or value in ({}, []):
            return True
        if isinstance(value, list):
            return any(differs(one, schema.get("items", {})) for one in value)
        properties = schema.get("properties", {})
        return isinstance(value, dict) and any(
            differs(one, properties.get(key, {})) for key, one in value.items()
        )

    arguments = call["arguments"]
    return bool(arguments) and differs(arguments, tools[call["name"]] | {"type": "object"})


# What a syntax has no way to say.
TYPED = ("qwen3_coder", "qwen3_xml", "mimo", "minimax_m2", "glm45", "deepseek_v32")
TYPED += ("seed_oss", "hy3", "minicpm5", "muse_glimmer")
UNSAYABLE: dict[str, Callable[[Call, dict[str, Any]], bool]] = {
    **dict.fromkeys(TYPED, is_beside_its_schema),
    **dict.fromkeys(("kimi_k3", "minimax_m3", "cohere_xml"), is_deeply_beside),
}

SYNTAXES: dict[str, Callable[[list[Call]], str]] = {
    "hermes": hermes,
    "exaone": exaone,
    "cohere": cohere,
    "cohere_xml": cohere_xml,
    "granite": lambda calls: f"<|tool_call|>{listed(calls)}",
    "granite_20b_fc": lambda calls: "".join(
        f"<function_call> {one}" for one in objects(calls, "arguments")
    ),
    "jamba": lambda calls: f"<tool_calls>{listed(calls)}</tool_calls>",
    "phi4_mini_json": lambda calls: f"functools{listed(calls)}",
    "internlm": internlm,
    "qwen3_coder": qwen3_coder,
    "qwen3_xml": qwen3_coder,
    "mimo": mimo,
    "minimax_m2": minimax_m2,
    "minimax_m3": minimax_m3,
    "glm45": glm45,
    "deepseek_v3": deepseek(deepseek_v3),
    "deepseek_v31": deepseek(deepseek_v31),
    "deepseek_v32": deepseek_v32,
    "kimi_k2": kimi_k2,
    "kimi_k3": kimi_k3,
    "harmony": harmony,
    "gemma4": gemma("<|tool_call>", '<|"|>', "<tool_call|>"),
    "functiongemma": gemma("<start_function_call>", "<escape>", "<end_function_call>"),
    "muse_glimmer": muse_glimmer,
    "mistral": mistral,
    "llama3_json": lambda calls: "; ".join(objects(calls, "parameters")),
    "llama4_json": lambda calls: "; ".join(objects(calls, "parameters")),
    "xlam": listed,
    "json_list": lambda calls: f"[{', '.join(objects(calls, 'parameters'))}]",
    "generic": lambda calls: "\n".join(
        f"<function_call>\n{one}\n</function_call>" for one in objects(calls, "arguments")
    ),
    "pythonic": pythonic,
    "llama4_pythonic": llama4_pythonic,
    "seed_oss": seed_oss,
    "hy3": hy3,
    "minicpm5": minicpm5,
    "solar_open": solar_open,
    "apertus": apertus,
    "nemotron_v2": lambda calls: f"<TOOLCALL>{listed(calls)}</TOOLCALL>",
    "lfm2": lambda calls: f"<|tool_call_start|>{pythonic(calls)}<|tool_call_end|>",
    "gigachat31": lambda calls: "\n".join(
        f"<|function_call|>{one}<|message_sep|>" for one in objects(calls)
    ),
    "gigachat3": lambda calls: "\n\n".join(
        f"function call<|role_sep|>\n{one}<|message_sep|>" for one in objects(calls)
    ),
}
