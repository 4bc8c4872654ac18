"""The cards of all public models: what Triton has loaded, where models.yaml says it is served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from build_engines.models_file import ModelEntry
from proxy.domain.endpoints import DEFAULT_POOL
from proxy.domain.model import LoadedModel, ModelCard
from proxy.models import deployment_plans, model_cards
from proxy.models.deployments import Deployment, DeploymentPlan
from proxy.models.model_cards import CardDefaults

Variants = tuple[ModelCard, ...]


@dataclass(frozen=True, slots=True)
class CardTable:
    """variants: all cards of a public model, adapters too, in the order of models.yaml, then by
    name. names: of each name and alias the public name. plans, policy: of the models that
    models.yaml has.
    """

    variants: Mapping[str, Variants]
    names: Mapping[str, str]
    plans: Mapping[str, DeploymentPlan]
    policy: Mapping[str, ModelEntry]

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """Every card of every model."""
        return tuple(card for cards in self.variants.values() for card in cards)

    def names_of(self, name: str) -> tuple[str, ...]:
        """The name and the aliases of the model that has this name or alias; empty: there is none.

        Knows the models of models.yaml that Triton has not loaded, too.
        """
        if (public := self.names.get(name)) is not None:
            return (public, *self.variants[public][0].aliases)
        named = ((one, *entry.aliases) for one, entry in self.policy.items())
        return next((names for names in named if name in names), ())

    def fallback_of(self, name: str) -> str | None:
        """The public model that answers in place of this one, as `names_of`."""
        if (public := self.names.get(name)) is not None:
            return self.variants[public][0].fallback
        entry = self.policy.get(next(iter(self.names_of(name)), ""))
        return None if entry is None else entry.fallback


def made(
    loaded: Sequence[LoadedModel], policy: Mapping[str, ModelEntry], defaults: CardDefaults
) -> CardTable:
    """
    Raises:
        NotReady: the limits of one of the models cannot be enforced.
    """
    cards: dict[str, list[ModelCard]] = {}
    for name, plan, entry in _public(loaded, policy):
        for deployment in plan.deployments:
            place = (deployment.pool, deployment.triton_model or name)
            for model in loaded:
                if (model.pool, model.name) == place and _has_version(model, deployment):
                    for card in model_cards.cards(name, model, deployment, entry, defaults):
                        cards.setdefault(card.name, []).append(card)
    names = {
        name: public for public, (card, *_) in cards.items() for name in (public, *card.aliases)
    }
    variants = {name: tuple(each) for name, each in cards.items()}
    return CardTable(variants, names, deployment_plans.plans(policy), policy)


def _has_version(model: LoadedModel, deployment: Deployment) -> bool:
    return deployment.version is None or deployment.version in model.versions


def _public(
    found: Sequence[LoadedModel], policy: Mapping[str, ModelEntry]
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
