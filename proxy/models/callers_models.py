"""The registry as the current caller may use it. Every route that takes a model's name uses it.

A key's patterns allow a model by its name or by any of its aliases; all its names then work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from build_engines.deployments import MAX_FALLBACKS
from proxy.domain.errors import ModelNotAllowed, UnknownModel
from proxy.domain.identity import current_caller
from proxy.domain.model import ModelCard
from proxy.models.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The model that answers a request. fallback_from: the name that the caller gave, if another.

    name: what the answer calls the model: an alias stays as the caller gave it.
    """

    card: ModelCard
    name: str
    fallback_from: str | None = None


class CallersModels:
    """Every method may raise ModelUnavailable: no model is known yet.

    is_available: whether a deployment of the model can take a request now.
    """

    def __init__(self, registry: Registry, is_available: Callable[[ModelCard], bool]) -> None:
        self._registry = registry
        self._is_available = is_available

    def serving(self, name: str | None) -> ServedModel:
        """The model that answers a request for this one: itself, or one of its fallbacks.

        Without an available model among them it is the model itself, whose request then fails, or
        waits for it. None: the first one that the caller may use.

        Raises:
            UnknownModel: no model has this name or alias.
            ModelNotAllowed: the caller's key does not allow it, or not any.
        """
        if name is None:
            name = self.asked(None).name
        names = self._registry.table.names_of(name)
        if names and not _allows(names):
            raise ModelNotAllowed(name)
        if (card := self._available(name)) is not None:
            return ServedModel(card=card, name=name)
        if (card := self._fallback(name)) is not None:
            return ServedModel(card=card, name=card.name, fallback_from=name)
        return ServedModel(card=self.known(name), name=name)

    def _fallback(self, name: str) -> ModelCard | None:
        """The first fallback that is available and that the caller may use."""
        for _ in range(MAX_FALLBACKS):
            follower = self._registry.table.fallback_of(name)
            if follower is None:
                return None
            name, card = follower, self._available(follower)
            if card is not None and _is_allowed(card):
                return card
        return None

    def _available(self, name: str) -> ModelCard | None:
        card = self._registry.found(name)
        return card if card is not None and self._is_available(card) else None

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
            raise ModelNotAllowed(self._registry.cards()[0].name)
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
    return _allows((card.name, *card.aliases))


def _allows(names: Iterable[str]) -> bool:
    models = current_caller.get().models
    return not models.patterns or any(map(models.allows, names))
