"""Triton models that only the proxy itself may call. Used by the routes of KServe.

The ensembles and their parts: whoever called the engine or the tokenizer directly would pass by
control tokens' protection, limits, usage and the model list of keys.
"""

from __future__ import annotations

from triton_openai.proxy.models.registry import Registry
from triton_openai.proxy.triton.catalog import NOTHING_SERVED


def internal_models(registry: Registry) -> frozenset[str]:
    """Raises ModelUnavailable: it is not known yet which models these are."""
    reason = registry.why_not_ready
    if reason is not None and reason.category == NOTHING_SERVED:
        return frozenset()
    return frozenset(
        name
        for card in registry.cards()
        for name in (
            *(card.triton_model, card.facts.engine_model),
            *(card.facts.tokenizer_model, card.facts.detokenizer_model),
        )
    )
