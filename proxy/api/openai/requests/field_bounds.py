"""Writes the settings' limits and the models' sizes into the OpenAPI document's schemas.

FieldLimits, `prepare` and the routes of /tokenize enforce them. Called by `cached_document`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from proxy.api.openai.requests.field_limits import FieldLimits
from proxy.domain.model import ModelCard

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


def bounds(limits: FieldLimits, sizes: ModelSizes | None) -> Callable[[Json], None]:
    """Returns a function that adds the bounds to schemas. `sizes`: None while no model is known."""

    def add(schemas: Json) -> None:
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

    return add


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
