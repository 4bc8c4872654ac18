"""Maps public names and aliases to model cards.

A card joins the facts of a model that Triton has loaded with the policy in models.yaml. Filled by
`readiness`, read by the service and the routes. A model has one card for each of its deployments,
and for each build of it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from triton_openai.build_engines.models_file import ModelEntry
from triton_openai.proxy.domain.endpoints import DEFAULT_POOL
from triton_openai.proxy.domain.engine import NotReady
from triton_openai.proxy.domain.errors import ModelUnavailable, UnknownModel
from triton_openai.proxy.domain.model import LoadedModel, ModelCard
from triton_openai.proxy.domain.request_limits import RequestLimits
from triton_openai.proxy.models import deployment_plans, model_cards
from triton_openai.proxy.models.deployments import Deployment, DeploymentPlan
from triton_openai.proxy.models.model_cards import CardDefaults

Variants = tuple[ModelCard, ...]


class Registry:
    """Keeps its cards while Triton is unavailable; `why_not_ready` then gives the reason.

    policy: entries by public name. A loaded model without an entry is served with defaults.
    limits: limits of requests to every model; a model's entry can only lower them. is_available:
    whether an endpoint serves a card's build now. rows: requests that its endpoints run at once.
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
        self.policy = policy
        self._defaults = CardDefaults(limits or RequestLimits(), callers_control_tokens)
        self._is_available = is_available
        self.rows = rows
        self._loaded: list[LoadedModel] = []
        self._variants: dict[str, Variants] = {}
        self._by_name: dict[str, str] = {}
        self._why_not_ready: NotReady | None = NotReady("", "Triton has not been reached yet")
        self.epoch = 0  # counts how often the models changed or Triton came back

    @property
    def why_not_ready(self) -> NotReady | None:
        """None while models can be served."""
        return self._why_not_ready

    def serve(self, loaded: Iterable[LoadedModel]) -> bool:
        """Makes the cards of the models that Triton has ready, in the order of models.yaml.

        Returns whether the models have changed, or Triton has come back, since the last call.

        Raises:
            NotReady: the limits of one of the models cannot be enforced.
        """
        found = sorted(loaded, key=_newest_first)
        if found == self._loaded and self._why_not_ready is None:
            return False
        self._take(found, self.policy)
        self._why_not_ready = None
        self.epoch += 1
        return True

    def cards_under(self, policy: Mapping[str, ModelEntry]) -> tuple[ModelCard, ...]:
        """The cards that `replace_policy` would make.

        Raises:
            NotReady: the limits of one of the models cannot be enforced.
        """
        return _flat(self._made(self._loaded, policy))

    def all_cards(self) -> tuple[ModelCard, ...]:
        """Every card of every model."""
        return _flat(self._variants)

    def replace_policy(self, policy: Mapping[str, ModelEntry]) -> None:
        """Makes the cards of the loaded models anew. Running requests keep the cards they have.

        Raises as `cards_under`, and has changed nothing then.
        """
        self._take(self._loaded, policy)

    def _take(self, found: list[LoadedModel], policy: Mapping[str, ModelEntry]) -> None:
        variants = self._made(found, policy)
        self._loaded, self.policy, self._variants = found, policy, variants
        self._by_name = {
            name: public
            for public, (card, *_) in variants.items()
            for name in (public, *card.aliases)
        }

    def _made(
        self, found: list[LoadedModel], policy: Mapping[str, ModelEntry]
    ) -> dict[str, Variants]:
        """By public name, adapters included, in the order of models.yaml, then by name."""
        made: dict[str, list[ModelCard]] = {}
        for name, plan, entry in _public(found, policy):
            for deployment in plan.deployments:
                place = (deployment.pool, deployment.triton_model or name)
                for model in found:
                    if (model.pool, model.name) == place and _has_version(model, deployment):
                        for card in model_cards.cards(
                            name, model, deployment, entry, self._defaults
                        ):
                            made.setdefault(card.name, []).append(card)
        return {name: tuple(cards) for name, cards in made.items()}

    def plan(self, name: str) -> DeploymentPlan:
        """The deployments of a public model; of an adapter, those of its model."""
        card = self._variants[name][0]
        entry = self.policy.get(card.parent or card.name)
        return deployment_plans.DEFAULT_PLAN if entry is None else deployment_plans.plan(entry)

    def variants(self, name: str) -> Variants:
        """Every card of a public model; at least one.

        Raises as `known`.
        """
        return self._variants[self.known(name).name]

    def has_build(self, card: ModelCard) -> bool:
        """Whether the model of this card is still this build, or one of its builds."""
        return any(card.is_same_build(one) for one in self._variants.get(card.name, ()))

    def is_available(self, card: ModelCard) -> bool:
        """Whether an endpoint serves this build now."""
        return self._why_not_ready is None and self._is_available(card)

    def can_serve(self, card: ModelCard) -> bool:
        """Whether any build in any deployment of this card's model is served now."""
        return any(map(self._is_available, self._variants.get(card.name, ())))

    @property
    def models(self) -> int:
        """How many are known, without their adapters."""
        return sum(cards[0].parent is None for cards in self._variants.values())

    def unserved(self) -> tuple[str, ...]:
        """The models that are known and that no endpoint serves now; without their adapters."""
        found = (cards[0] for cards in self._variants.values())
        return tuple(one.name for one in found if one.parent is None and not self.can_serve(one))

    def suspend(self, reason: NotReady) -> None:
        """Stops serving: Triton is unavailable, or its models do not fit the contract."""
        self._why_not_ready = reason

    def cards(self) -> tuple[ModelCard, ...]:
        """All models, in the order of models.yaml; of each its first card.

        Raises:
            ModelUnavailable: none is known yet.
        """
        if not self._variants:
            raise self._unavailable()
        return tuple(variants[0] for variants in self._variants.values())

    def default(self) -> ModelCard:
        """The first model, for requests that name none.

        Raises:
            ModelUnavailable: none is known yet.
        """
        return self.cards()[0]

    def found(self, name: str) -> ModelCard | None:
        """The first card of a model, even while Triton is unavailable; None: none is loaded.

        Raises:
            ModelUnavailable: none is known yet.
        """
        if not self._variants:
            raise self._unavailable()
        public = self._by_name.get(name)
        return None if public is None else self._variants[public][0]

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

    def names_of(self, name: str) -> tuple[str, ...]:
        """The name and the aliases of the model that has this name or alias; empty: there is none.

        Knows the models of models.yaml that Triton has not loaded, too.
        """
        if (public := self._by_name.get(name)) is not None:
            return (public, *self._variants[public][0].aliases)
        named = ((one, *entry.aliases) for one, entry in self.policy.items())
        return next((names for names in named if name in names), ())

    def fallback_of(self, name: str) -> str | None:
        """The public model that answers in place of this one, as `names_of`."""
        if (public := self._by_name.get(name)) is not None:
            return self._variants[public][0].fallback
        entry = self.policy.get(next(iter(self.names_of(name)), ""))
        return None if entry is None else entry.fallback

    def card(self, name: str) -> ModelCard:
        """The card of a model that can be served now.

        Raises:
            UnknownModel: no model has this name or alias.
            ModelUnavailable: Triton is not ready.
        """
        card = self.known(name)
        self.check_available()
        return card

    def check_available(self) -> None:
        """Raises ModelUnavailable: Triton is not ready."""
        if self._why_not_ready is not None:
            raise self._unavailable()

    def _unavailable(self) -> ModelUnavailable:
        category = self._why_not_ready and self._why_not_ready.category
        return ModelUnavailable(f"The model is not available at present: {category}.")


def _flat(variants: Mapping[str, Variants]) -> tuple[ModelCard, ...]:
    return tuple(card for cards in variants.values() for card in cards)


def _has_version(model: LoadedModel, deployment: Deployment) -> bool:
    return deployment.version is None or deployment.version in model.versions


def _newest_first(model: LoadedModel) -> tuple[str, str, int]:
    return model.name, model.pool, -model.facts.created


def _public(
    found: list[LoadedModel], policy: Mapping[str, ModelEntry]
) -> Iterator[tuple[str, DeploymentPlan, ModelEntry | None]]:
    """The models of models.yaml; then what else is loaded, under Triton's name of it.

    A Triton model that an entry's deployment names is not also served under its own name. One that
    several pools have is served from the pool `default`, or else from the first by name.
    """
    claimed = set()
    for name, entry in policy.items():
        plan = deployment_plans.plan(entry)
        claimed |= {(one.pool, one.triton_model or name) for one in plan.deployments}
        yield name, plan, entry
    others: dict[str, str] = {}
    for model in found:
        if (model.pool, model.name) not in claimed and model.name not in policy:
            pool = others.setdefault(model.name, model.pool)
            if model.pool == DEFAULT_POOL != pool:
                others[model.name] = DEFAULT_POOL
    for name, pool in sorted(others.items()):
        yield name, deployment_plans.of_pool(pool), None
