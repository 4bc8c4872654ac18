"""The OpenAPI document with the settings' limits and the models' sizes. Called by `app`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from fastapi import APIRouter

from triton_openai.proxy.api.openai.documentation import parameter_descriptions
from triton_openai.proxy.api.openai.requests import field_bounds, field_rules
from triton_openai.proxy.api.openai.requests.field_bounds import ModelSizes
from triton_openai.proxy.api.openai.requests.field_limits import FieldLimits
from triton_openai.proxy.api.openapi import document
from triton_openai.proxy.models.registry import Registry


def cached_document(
    routers: tuple[APIRouter, ...], limits: FieldLimits, registry: Registry, *, needs_keys: bool
) -> Callable[[], bytes]:
    """Returns a function that gives the document as JSON; it makes it anew when models change."""

    @lru_cache(maxsize=1)
    def made(sizes: ModelSizes | None) -> bytes:
        bounds = field_bounds.bounds(limits, sizes)
        adjust = (parameter_descriptions.describe, field_rules.add, bounds)
        return document.as_json(routers, adjust, needs_keys=needs_keys)

    return lambda: made(field_bounds.model_sizes(registry.cards()))
