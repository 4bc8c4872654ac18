"""Triton models that only the proxy itself may call. Used by the routes of KServe.

The ensembles of every deployment and build, and their parts: whoever called the engine or the
tokenizer directly would pass by control tokens' protection, limits, usage and the model list of
keys.
"""

from __future__ import annotations

from proxy.models.registry import Registry
from proxy.triton.catalog import NOTHING_SERVED


def internal_models(registry: Registry) -> frozenset[str]:
    """Raises ModelUnavailable: it is not known yet which models these are."""
    reason = registry.why_not_ready
    if reason is not None and reason.category == NOTHING_SERVED:
        return frozenset()
    registry.cards()  # raises
    return frozenset(
        name
        for model in registry.loaded
        for name in (
            model.name,
            model.facts.engine_model,
            model.facts.tokenizer_model,
            model.facts.detokenizer_model,
        )
    )
