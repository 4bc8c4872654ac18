"""The settings' limits on fields of one request, and how the OpenAPI document shows them, with the
models' sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.tool_bodies import ToolBody
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.model import ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldLimits:
    """Numbers of elements, and (`_bytes`) bytes of UTF-8.

    stops: stop strings, and stop token ids. choices: prompts x candidates. logit_bias: also of
    bad_words.
    """

    stops: int = 16
    stop_bytes: int = 4096
    messages: int = 2048
    logit_bias: int = 1024
    allowed_token_ids: int = 16_384
    choices: int = 128
    tools: int = 128
    tools_bytes: int = 256_000

    def check(self, body: ChatCompletionBody | CompletionBody) -> None:
        """Raises InvalidRequest."""
        if body.stop is not None:
            _check("stop", len(body.stops), self.stops)
            stop_bytes = sum(len(stop.encode()) for stop in body.stops)
            _check("stop", stop_bytes, self.stop_bytes, of="bytes ")
        for name, most in (
            ("stop_token_ids", self.stops),
            ("bad_words", self.logit_bias),
            ("logit_bias", self.logit_bias),
            ("allowed_token_ids", self.allowed_token_ids),
        ):
            if (given := getattr(body, name)) is not None:
                _check(name, len(given), most)
        if isinstance(body, ChatCompletionBody):
            self.check_chat(body.messages, body.tools)
            if body.n is not None:
                _check("n", body.n, self.choices)
        else:
            first = body.prompt[0] if body.prompt else ""
            is_one = isinstance(body.prompt, str) or isinstance(first, int)
            candidates = max(body.n or 1, body.best_of or 1)
            _check("prompt", candidates * (1 if is_one else len(body.prompt)), self.choices)

    def check_chat(self, messages: Sized | None, tools: Sequence[ToolBody] | None) -> None:
        """Checks a chat's messages and tools; used for every protocol. Raises InvalidRequest."""
        if messages is not None:
            _check("messages", len(messages), self.messages)
        if tools:
            _check("tools", len(tools), self.tools)
            tools_bytes = sum(len(tool.model_dump_json().encode()) for tool in tools)
            _check("tools", tools_bytes, self.tools_bytes, of="bytes ")


def _check(param: str, count: int, most: int, *, of: str = "") -> None:
    if count > most:
        is_messages = param == "messages"
        raise InvalidRequest(
            f"Invalid value for '{param}': at most {most} {of}are allowed, {count} are asked for.",
            code=ErrorCode.INVALID_MESSAGES if is_messages else ErrorCode.INVALID_PARAMETER,
            param=param,
        )


Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """The largest vocabulary and context of all models, in tokens."""

    vocabulary: int
    context: int


def model_sizes(cards: Iterable[ModelCard]) -> ModelSizes | None:
    facts = [card.facts for card in cards]
    if not facts:
        return None
    return ModelSizes(
        vocabulary=max(one.vocab_size for one in facts),
        context=max(one.context_length for one in facts),
    )


def add_bounds(schemas: Json, limits: FieldLimits, sizes: ModelSizes | None) -> None:
    """Adds the bounds to schemas. `sizes`: None while no model is known."""
    for name in ("ChatCompletionBody", "PlainChatBody", "TokenizeBody"):
        properties = schemas[name]["properties"]
        # Only in the description: hardly any model's context holds so many messages.
        properties["messages"]["description"] += f"; at most {limits.messages}"
        if "tools" in properties:
            _bound(properties["tools"], "array", maxItems=limits.tools)
    for name in ("ChatCompletionBody", "CompletionBody"):
        _bound_generation(schemas[name]["properties"], limits)
    _bound_choices(schemas["CompletionBody"]["properties"], limits)
    if sizes is not None:
        tokens = schemas["DetokenizeBody"]["properties"]["tokens"]
        _bound(tokens, "array", maxItems=sizes.context)
        _bound_ids(tokens, sizes)
        for name in ("ChatCompletionBody", "CompletionBody"):
            for field in ("prompt", "prompt_token_ids", "allowed_token_ids", "stop_token_ids"):
                _bound_ids(schemas[name]["properties"].get(field, {}), sizes)


def _bound_ids(schema: Json, sizes: ModelSizes) -> None:
    """Bounds the ids of each list of token ids, and of lists of these."""
    for form in (schema, *schema.get("anyOf", ()), *_nested(schema)):
        if form.get("type") == "array":
            _bound(form["items"], "integer", maximum=sizes.vocabulary - 1)
            _bound_ids(form["items"], sizes)


def _bound_generation(properties: Json, limits: FieldLimits) -> None:
    for name, most in (
        ("stop", limits.stops),
        ("stop_token_ids", limits.stops),
        ("bad_words", limits.logit_bias),
        ("allowed_token_ids", limits.allowed_token_ids),
    ):
        _bound(properties[name], "array", maxItems=most)
    _bound(properties["logit_bias"], "object", maxProperties=limits.logit_bias)
    _bound(properties["n"], "integer", maximum=limits.choices)


def _bound_choices(properties: Json, limits: FieldLimits) -> None:
    """Each prompt of a list has its choices; a list of token ids is one prompt."""
    _bound(properties["best_of"], "integer", maximum=limits.choices)
    for form in properties["prompt"]["anyOf"]:
        if form.get("items", {}).get("type") in ("string", "array"):
            _bound(form, "array", maxItems=limits.choices)


def _bound(schema: Json, kind: str, **keywords: int) -> None:
    """Tightens the keywords of the schema's alternatives that have this type."""
    for form in (schema, *schema.get("anyOf", ()), *_nested(schema)):
        if form.get("type") != kind:
            continue
        for name, bound in keywords.items():
            closer = max if name == "minimum" else min
            form[name] = closer(bound, form.get(name, bound))


def _nested(schema: Json) -> list[Json]:
    return [form for one in (schema, *schema.get("anyOf", ())) for form in one.get("oneOf", ())]
