"""The OpenAPI document of this server: with its settings' limits and its models' sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from fastapi import APIRouter

from triton_openai.proxy.api.openai.documentation import parameter_words
from triton_openai.proxy.api.openai.requests import field_bounds, field_rules
from triton_openai.proxy.api.openai.requests.field_bounds import Sizes
from triton_openai.proxy.api.openai.requests.limits import Limits
from triton_openai.proxy.api.openapi import document
from triton_openai.proxy.models.registry import Registry


def published(
    routers: tuple[APIRouter, ...], limits: Limits, registry: Registry
) -> Callable[[], bytes]:
    """Returns what makes the document as JSON, and makes it again when the models change."""

    @lru_cache(maxsize=1)
    def made(sizes: Sizes | None) -> bytes:
        bounds = field_bounds.bounds(limits, sizes)
        return document.as_json(routers, (parameter_words.describe, field_rules.add, bounds))

    return lambda: made(field_bounds.sizes_of(registry.cards()))
