"""Rules between the fields of one body, as JSON Schema, for the OpenAPI document.

The validators of the bodies enforce them. JSON Schema cannot express some rules: `min_tokens` up
to the limit, `best_of` from `n` on, unique names of tools. Where two fields mean the same and must
be equal, the document allows only one of them.
"""

from __future__ import annotations

from typing import Any

from proxy.api.openai.chat_body import TEMPLATE_FIELDS

Json = dict[str, Any]
NULL: Json = {"type": "null"}
OFF: Json = {"enum": [False, None]}
GUIDES = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
FORMATS = (*GUIDES, "json_schema", "regex", "ebnf")
STRUCTURED = ("json", "regex", "choice", "grammar", "structural_tag")
# Field of nvext -> the body's own field with the same meaning.
TWINS = {
    "ignore_eos": "ignore_eos",
    "top_k": "top_k",
    "repetition_penalty": "repetition_penalty",
    "agent_hints": "priority",
}


def add(schemas: Json) -> None:
    """Adds the rules to the document's schemas, as `allOf` or, beyond the first few, as `x-rules`.

    Tools that generate bodies from a schema multiply the alternatives of all its rules, and give
    up beyond about 32. So most rules of the two large bodies are in `x-rules`, which they ignore.
    """
    for name, rules in RULES.items():
        validating = VALIDATING if name in LARGE else len(rules)
        schemas[name]["allOf"] = [*rules[:validating]]
        if rules[validating:]:
            schemas[name]["x-rules"] = [*rules[validating:]]


def _with(**properties: Json) -> Json:
    """Objects in which each of these properties is absent or fits its schema."""
    return {"properties": properties}


def _without(*names: str) -> Json:
    return _with(**dict.fromkeys(names, NULL))


def _nvext(**properties: Json) -> Json:
    return _with(nvext=_with(**properties))


def _needs(**properties: Json) -> Json:
    return {"required": [*properties], "properties": properties}


def _either(words: str, *schemas: Json) -> Json:
    return {"description": words, "anyOf": [*schemas]}


def _both(*schemas: Json) -> Json:
    """Objects that fit all schemas; a property that several schemas have is merged."""
    found: Json = {}
    for schema in schemas:
        for name, value in schema["properties"].items():
            found[name] = _both(found[name], value) if name in found else value
    return _with(**found)


def _one_of(words: str, absent: dict[str, Json]) -> Json:
    """At most one property is given. `absent`: each, when it is not given."""
    return _either(
        words, *(_with(**{k: v for k, v in absent.items() if k != name}) for name in absent)
    )


NO_STRUCTURED = _both(_without(*STRUCTURED), _with(json_object=OFF))
NO_FORMAT: dict[str, Json] = {
    **dict.fromkeys(FORMATS, NULL),
    "response_format": {"anyOf": [NULL, _needs(type={"const": "text"})]},
    "structured_outputs": NO_STRUCTURED,
    "nvext": _without(*GUIDES),
}
TEXT_PROMPT: Json = {"type": ["string", "array"], "items": {"type": "string"}}
STREAMS = _needs(stream={"const": True})

LARGE = ("ChatCompletionBody", "CompletionBody")
VALIDATING = 4  # how many rules of a large body are in `allOf`; each has two alternatives
COMMON = (
    _either("`stream_options` needs `stream`.", _without("stream_options"), STREAMS),
    _either(
        "`truncation_side` needs `truncate_prompt_tokens`.",
        _without("truncation_side"),
        _needs(truncate_prompt_tokens={"type": "integer"}),
    ),
)
GENERATION = (
    _either("`nvext.annotations` need `stream`.", _nvext(annotations={"maxItems": 0}), STREAMS),
    _either(
        "`spaces_between_special_tokens` needs `skip_special_tokens`.",
        _with(spaces_between_special_tokens=OFF),
        _with(skip_special_tokens={"enum": [True, None]}),
    ),
    _one_of("At most one field sets the format of the answer.", NO_FORMAT),
    *(
        _either(f"`{own}` or `nvext.{extra}`.", _without(own), _nvext(**{extra: NULL}))
        for extra, own in TWINS.items()
    ),
)
CHAT = (
    *COMMON,
    _one_of(
        "`max_tokens` or `max_completion_tokens`; if both are given, they must be equal.",
        dict.fromkeys(("max_tokens", "max_completion_tokens"), NULL),
    ),
    _either(
        "`top_logprobs` needs `logprobs`.",
        _with(top_logprobs={"enum": [0, None]}),
        _needs(logprobs={"const": True}),
    ),
    *GENERATION,
    _either(
        "`continue_final_message` or `add_generation_prompt`.",
        _with(continue_final_message=OFF),
        _with(add_generation_prompt=OFF),
    ),
    _either(
        "`prompt_token_ids`, `nvext.token_data` and `nvext.use_raw_prompt` use no chat template.",
        _both(_without("prompt_token_ids"), _nvext(token_data=NULL, use_raw_prompt=OFF)),
        _without(*TEMPLATE_FIELDS),
    ),
    _either(
        "`nvext.use_raw_prompt` needs exactly one message, of the user.",
        _nvext(use_raw_prompt=OFF),
        _both(
            _without("prompt_token_ids"),
            _nvext(token_data=NULL),
            _with(messages={"maxItems": 1, "items": _with(role={"const": "user"})}),
        ),
    ),
    _either(
        "`truncate_prompt_tokens` or a thinking budget.",
        _without("truncate_prompt_tokens"),
        _both(_without("thinking_token_budget"), _nvext(max_thinking_tokens=NULL)),
    ),
    *(
        _either(f"`{own}` or `nvext.{extra}`.", _without(own), _nvext(**{extra: NULL}))
        for extra, own in (
            ("token_data", "prompt_token_ids"),
            ("max_thinking_tokens", "thinking_token_budget"),
        )
    ),
)
COMPLETION = (
    *COMMON,
    _either(
        "`max_tokens` 0 needs `echo`.",
        _with(max_tokens={"not": {"const": 0}}),
        _needs(echo={"const": True}),
    ),
    _nvext(max_thinking_tokens=NULL),
    *GENERATION,
    _either(
        "`suffix` needs a prompt that is text, without `echo` and `nvext.token_data`.",
        _without("suffix"),
        _both(_with(prompt=TEXT_PROMPT, echo=OFF), _nvext(token_data=NULL)),
    ),
    _either("`echo` or a format of the answer.", _with(echo=OFF), _with(**NO_FORMAT)),
    _either(
        "`nvext.token_data` replaces a prompt that is text.",
        _nvext(token_data=NULL),
        _with(prompt=TEXT_PROMPT),
    ),
)
TOKENIZE = (
    _either(
        "`prompt`, or `messages` with their fields.",
        _both(
            _needs(prompt={"type": "string"}),
            _without("messages", "tools", "add_generation_prompt", "continue_final_message"),
        )
        | {"required": ["prompt"]},
        _both(_needs(messages={"type": "array"}), _without("prompt")) | {"required": ["messages"]},
    ),
)
STRUCTURED_OUTPUTS = (
    _one_of("At most one field.", {**dict.fromkeys(STRUCTURED, NULL), "json_object": OFF}),
)
NVEXT = (
    _one_of("At most one guide.", dict.fromkeys(GUIDES, NULL)),
    _one_of(
        "`greedy_sampling` or `greed_sampling`, which mean the same.",
        dict.fromkeys(("greedy_sampling", "greed_sampling"), NULL),
    ),
)
RULES = {
    "ChatCompletionBody": CHAT,
    "CompletionBody": COMPLETION,
    "TokenizeBody": TOKENIZE,
    "StructuredOutputs": STRUCTURED_OUTPUTS,
    "NvExt": NVEXT,
}
