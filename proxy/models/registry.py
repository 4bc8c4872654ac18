"""Maps public names and aliases to model cards.

A card joins the facts of a model that Triton has loaded with the policy in models.yaml. Filled by
`readiness`, read by the service and the routes. A model has one card for each of its deployments,
and for each build of it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from build_engines.models_file import ModelEntry
from proxy.domain.engine import NotReady
from proxy.domain.errors import ModelUnavailable, UnknownModel
from proxy.domain.model import LoadedModel, ModelCard
from proxy.domain.request_limits import RequestLimits
from proxy.models import card_table
from proxy.models.card_table import CardDefaults, CardTable, Variants
from proxy.models.deployments import DEFAULT_PLAN, DeploymentPlan
from proxy.triton.catalog import NOTHING_SERVED


class Registry:
    """Keeps its cards while Triton is unavailable; `why_not_ready` then gives the reason, or None.

    policy: entries by public name. A loaded model without an entry is served with defaults.
    limits: limits of requests to every model; a model's entry can only lower them. is_available:
    whether an endpoint serves a card's build now. rows: requests that its endpoints run at once.
    loaded: what all Tritons have, also where no deployment names it. table: what is served now.
    """

    def __init__(
        self,
        policy: Mapping[str, ModelEntry],
        limits: RequestLimits | None = None,
        *,
        callers_control_tokens: str = "plain",
        is_available: Callable[[ModelCard], bool] = lambda card: True,
        rows: Callable[[ModelCard], int] = lambda card: card.facts.rows,
    ) -> None:
        self._defaults = CardDefaults(limits or RequestLimits(), callers_control_tokens)
        self._is_available = is_available
        self.rows = rows
        self.loaded: list[LoadedModel] = []
        self.table = CardTable({}, {}, {}, policy)
        self.why_not_ready: NotReady | None = NotReady("", "Triton has not been reached yet")
        self.epoch = 0  # counts how often the models changed or Triton came back

    def serve(self, loaded: Iterable[LoadedModel]) -> bool:
        """Makes the cards of the models that Triton has ready, in the order of models.yaml.

        Returns whether the models have changed, or Triton has come back, since the last call.
        Raises NotReady: the limits of one of the models cannot be enforced.
        """
        found = sorted(loaded, key=_newest_first)
        if found == self.loaded and self.why_not_ready is None:
            return False
        self._take(found, self.table.policy)
        self.why_not_ready = None
        self.epoch += 1
        return True

    def cards_under(self, policy: Mapping[str, ModelEntry]) -> tuple[ModelCard, ...]:
        """The cards that `replace_policy` would make.

        Raises:
            NotReady: the limits of one of the models cannot be enforced.
        """
        return card_table.made(self.loaded, policy, self._defaults).cards

    def replace_policy(self, policy: Mapping[str, ModelEntry]) -> None:
        """Makes the cards of the loaded models anew. Running requests keep the cards they have.

        Raises as `cards_under`, and has changed nothing then.
        """
        self._take(self.loaded, policy)

    def _take(self, found: list[LoadedModel], policy: Mapping[str, ModelEntry]) -> None:
        self.table = card_table.made(found, policy, self._defaults)
        self.loaded = found

    def plan(self, card: ModelCard) -> DeploymentPlan:
        """The deployments of a card's public model; of an adapter, those of its model."""
        return self.table.plans.get(card.parent or card.name, DEFAULT_PLAN)

    def internal_models(self) -> frozenset[str]:
        """Triton models that only the proxy itself may call: the ensembles of every deployment and
        build, and their parts. Whoever called the engine or the tokenizer directly would pass by
        control tokens' protection, limits, usage and the model list of keys.

        Raises:
            ModelUnavailable: it is not known yet which models these are.
        """
        reason = self.why_not_ready
        if reason is not None and reason.category == NOTHING_SERVED:
            return frozenset()
        self.cards()  # raises
        return frozenset(
            name
            for model in self.loaded
            for name in (
                model.name,
                model.facts.engine_model,
                model.facts.tokenizer_model,
                model.facts.detokenizer_model,
            )
        )

    def variants(self, name: str) -> Variants:
        """Every card of a public model; at least one.

        Raises as `known`.
        """
        return self.table.variants[self.known(name).name]

    def has_build(self, card: ModelCard) -> bool:
        """Whether the model of this card is still this build, or one of its builds."""
        return any(card.is_same_build(one) for one in self.table.variants.get(card.name, ()))

    def is_available(self, card: ModelCard) -> bool:
        """Whether an endpoint serves this build now."""
        return self.why_not_ready is None and self._is_available(card)

    def can_serve(self, card: ModelCard) -> bool:
        """Whether any build in any deployment of this card's model is served now."""
        return any(map(self._is_available, self.table.variants.get(card.name, ())))

    @property
    def models(self) -> int:
        """How many are known, without their adapters."""
        return sum(cards[0].parent is None for cards in self.table.variants.values())

    def unserved(self) -> tuple[str, ...]:
        """The models that are known and that no endpoint serves now; without their adapters."""
        found = (cards[0] for cards in self.table.variants.values())
        return tuple(one.name for one in found if one.parent is None and not self.can_serve(one))

    def suspend(self, reason: NotReady) -> None:
        """Stops serving: Triton is unavailable, or its models do not fit the contract."""
        self.why_not_ready = reason

    def cards(self) -> tuple[ModelCard, ...]:
        """All models, in the order of models.yaml; of each its first card.

        Raises:
            ModelUnavailable: none is known yet.
        """
        if not self.table.variants:
            raise self._unavailable()
        return tuple(variants[0] for variants in self.table.variants.values())

    def found(self, name: str) -> ModelCard | None:
        """The first card of a model, even while Triton is unavailable; None: none is loaded.

        Raises:
            ModelUnavailable: none is known yet.
        """
        if not self.table.variants:
            raise self._unavailable()
        public = self.table.names.get(name)
        return None if public is None else self.table.variants[public][0]

    def known(self, name: str) -> ModelCard:
        """The first card of a model, even while Triton is unavailable.

        Raises:
            UnknownModel: no model has this name or alias.
            ModelUnavailable: none is known yet.
        """
        card = self.found(name)
        if card is None:
            raise UnknownModel(name)
        return card

    def check_available(self) -> None:
        """Raises ModelUnavailable: Triton is not ready."""
        if self.why_not_ready is not None:
            raise self._unavailable()

    def _unavailable(self) -> ModelUnavailable:
        category = self.why_not_ready and self.why_not_ready.category
        return ModelUnavailable(f"The model is not available at present: {category}.")


def _newest_first(model: LoadedModel) -> tuple[str, str, int]:
    return model.name, model.pool, -model.facts.created
