"""The settings' limits and the models' sizes, in JSON Schema, for the OpenAPI document.

`limits` and the tokens' routes enforce them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from triton_openai.proxy.api.openai.requests.limits import Limits
from triton_openai.proxy.domain.model import ModelCard

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """In tokens, of the models that have most: no model takes more."""

    vocabulary: int
    context: int


def sizes_of(cards: Iterable[ModelCard]) -> Sizes | None:
    facts = [card.facts for card in cards]
    if not facts:
        return None
    return Sizes(
        vocabulary=max(one.vocab_size for one in facts),
        context=max(one.context_length for one in facts),
    )


def bounds(limits: Limits, sizes: Sizes | None) -> Callable[[Json], None]:
    """Adds them to the document's schemas. `sizes`: None while no model is known."""

    def add(schemas: Json) -> None:
        for name in ("ChatCompletionBody", "PlainChatBody", "TokenizeBody"):
            properties = schemas[name]["properties"]
            # In words alone: so many would not fit the context of nearly any model.
            properties["messages"]["description"] += f"; at most {limits.messages}"
            if "tools" in properties:
                _bound(properties["tools"], "array", maxItems=limits.tools)
        for name in ("ChatCompletionBody", "CompletionBody"):
            _bound_generation(schemas[name]["properties"], limits)
        _bound_choices(schemas["CompletionBody"]["properties"], limits)
        hint = schemas["AgentHints"]["properties"]["priority"]
        _bound(hint, "integer", maximum=limits.priority)
        if sizes is not None:
            tokens = schemas["DetokenizeBody"]["properties"]["tokens"]
            _bound(tokens, "array", maxItems=sizes.context)
            _bound(tokens["items"], "integer", maximum=sizes.vocabulary - 1)

    return add


def _bound_generation(properties: Json, limits: Limits) -> None:
    for name, most in (
        ("stop", limits.stops),
        ("stop_token_ids", limits.stops),
        ("bad_words", limits.logit_bias),
        ("allowed_token_ids", limits.allowed_token_ids),
    ):
        _bound(properties[name], "array", maxItems=most)
    _bound(properties["logit_bias"], "object", maxProperties=limits.logit_bias)
    _bound(properties["n"], "integer", maximum=limits.choices)
    _bound(properties["priority"], "integer", minimum=-limits.priority)


def _bound_choices(properties: Json, limits: Limits) -> None:
    """A list of prompts has a choice for each; a list of token ids is one prompt."""
    _bound(properties["best_of"], "integer", maximum=limits.choices)
    for form in properties["prompt"]["anyOf"]:
        if form.get("items", {}).get("type") in ("string", "array"):
            _bound(form, "array", maxItems=limits.choices)


def _bound(schema: Json, kind: str, **keywords: int) -> None:
    """Adds keywords to the alternative of that type, where it allows more."""
    for form in (schema, *schema.get("anyOf", ()), *_nested(schema)):
        if form.get("type") != kind:
            continue
        for name, bound in keywords.items():
            closer = max if name == "minimum" else min
            form[name] = closer(bound, form.get(name, bound))


def _nested(schema: Json) -> list[Json]:
    return [form for one in (schema, *schema.get("anyOf", ())) for form in one.get("oneOf", ())]
