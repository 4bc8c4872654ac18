"""The registry as the current caller may use it. Every route that takes a model's name uses it.

A key's patterns allow a model by its name or by any of its aliases; all its names then work.
"""

from __future__ import annotations

from triton_openai.proxy.domain.errors import ModelNotAllowed, UnknownModel
from triton_openai.proxy.domain.identity import current_caller
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.models.registry import Registry


class CallersModels:
    """Every method may raise ModelUnavailable: no model is known yet."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def known(self, name: str) -> ModelCard:
        """The card of a model, even while Triton is unavailable.

        Raises:
            UnknownModel: no model has this name or alias.
            ModelNotAllowed: the caller's key does not allow it.
        """
        card = self._registry.known(name)
        if not _is_allowed(card):
            raise ModelNotAllowed(name)
        return card

    def asked(self, name: str | None) -> ModelCard:
        """The card of a model, or for None of the first one that the caller may use.

        Raises:
            UnknownModel: no model has this name or alias.
            ModelNotAllowed: the caller's key does not allow it, or not any.
        """
        if name is not None:
            return self.known(name)
        if not (cards := self.listed()):
            raise ModelNotAllowed(self._registry.default().name)
        return cards[0]

    def listed(self) -> tuple[ModelCard, ...]:
        """The models that the caller may use, in the order of models.yaml."""
        return tuple(card for card in self._registry.cards() if _is_allowed(card))

    def shown(self, name: str) -> ModelCard:
        """The card of a model; one that is not allowed does not exist for this caller.

        Raises:
            UnknownModel: no model that the caller may use has this name or alias.
        """
        card = self._registry.known(name)
        if not _is_allowed(card):
            raise UnknownModel(name)
        return card

    def check_available(self) -> None:
        """Raises ModelUnavailable: Triton is not ready."""
        self._registry.check_available()


def _is_allowed(card: ModelCard) -> bool:
    models = current_caller.get().models
    return not models.patterns or any(map(models.allows, (card.name, *card.aliases)))
