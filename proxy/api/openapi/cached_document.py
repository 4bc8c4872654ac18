"""The OpenAPI document of this server: with its settings' limits and its models' sizes."""

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
    routers: tuple[APIRouter, ...], limits: FieldLimits, registry: Registry
) -> Callable[[], bytes]:
    """Returns what makes the document as JSON, and makes it again when the models change."""

    @lru_cache(maxsize=1)
    def made(sizes: ModelSizes | None) -> bytes:
        bounds = field_bounds.bounds(limits, sizes)
        return document.as_json(routers, (parameter_descriptions.describe, field_rules.add, bounds))

    return lambda: made(field_bounds.model_sizes(registry.cards()))
