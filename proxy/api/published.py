"""The OpenAPI document of this server: with its settings' limits and its models' sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from fastapi import APIRouter

from proxy.api import document
from proxy.api.openai import field_bounds, field_rules, parameter_words
from proxy.api.openai.field_bounds import Sizes
from proxy.api.openai.limits import Limits
from proxy.registry import Registry


def published(
    routers: tuple[APIRouter, ...], limits: Limits, registry: Registry
) -> Callable[[], bytes]:
    """Returns what makes the document as JSON, and makes it again when the models change."""

    @lru_cache(maxsize=1)
    def made(sizes: Sizes | None) -> bytes:
        bounds = field_bounds.bounds(limits, sizes)
        return document.as_json(routers, (parameter_words.describe, field_rules.add, bounds))

    return lambda: made(field_bounds.sizes_of(registry.cards()))
