"""The models that are served, by public name and alias, and which of them the caller may use.

`readiness` and `policy_watch` keep it up to date; the service and the routes read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from build_engines.deployments import MAX_FALLBACKS
from build_engines.models_file import ModelEntry
from proxy.domain.engine import NotReady
from proxy.domain.errors import ModelUnavailable, UnknownModel, model_not_allowed
from proxy.domain.model import LoadedModel, ModelCard, ModelFacts
from proxy.domain.request_limits import RequestLimits
from proxy.models.deployments import DeploymentPlan
from proxy.models.public_models import (
    CardDefaults,
    Models,
    PublicModel,
    claimed,
    public_models,
)
from proxy.triton.catalog import NOTHING_SERVED

NOT_AVAILABLE = "The model is not available at present: {}."
NEVER_SEEN = (
    "The model is not available at present: no server has had it since this proxy started, so "
    "requests cannot be prepared for it, and do not wait."
)
LONGEST_COMPARED, MOST_COMPARED = 64, 16  # an unknown name, with so many known ones


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The model that answers a request. fallback_from: the name that the caller gave, if another.

    name: what the answer calls the model: an alias stays as the caller gave it.
    """

    card: ModelCard
    name: str
    fallback_from: str | None = None


class Registry:
    """Keeps its models while Triton is unavailable; `why_not_ready` then gives the reason, or None.

    policy: entries by public name. A loaded model without an entry is served with defaults.
    limits: limits of requests to every model; a model's entry can only lower them. is_available:
    whether an endpoint serves a card's build now. rows: requests that its endpoints run at once.
    loaded: what all Tritons have, also where no deployment names it. models: those that are served;
    replaced as a whole. unfit: by name, why not all builds of a model are served. epoch: how often
    the models changed or Triton came back. away: the models that no endpoint served at the last
    check. holds: requests of a model that models.yaml names, and that no endpoint serves any more,
    are let through to wait for one.
    """

    def __init__(
        self,
        policy: Mapping[str, ModelEntry],
        limits: RequestLimits | None = None,
        *,
        callers_control_tokens: str = "plain",
        is_available: Callable[[ModelCard], bool] = lambda card: True,
        rows: Callable[[ModelCard], int] = lambda card: card.facts.rows,
        holds: bool = False,
    ) -> None:
        self._defaults = CardDefaults(limits or RequestLimits(), callers_control_tokens)
        self._is_available = is_available
        self._holds, self._has_endpoints = holds, False
        self.rows = rows
        self.why_not_ready: NotReady | None = NotReady("", "Triton has not been reached yet")
        self.epoch = 0
        self.away: tuple[str, ...] = ()
        self._take([], policy, public_models([], policy, self._defaults))

    def serve(self, loaded: Iterable[LoadedModel]) -> bool:
        """Makes cards of the models that Triton has ready. Where they no longer fit their entry,
        the builds that were served before, and are still there, continue.

        Returns whether the models have changed, or Triton has come back, since the last call.
        Raises NotReady: no model can be served.
        """
        self._has_endpoints = True
        loaded = [*loaded]
        if self._holds:
            there = {(one.pool, one.name) for one in loaded}
            gone = [one for one in self.loaded if (one.pool, one.name) not in there]
            loaded += [one for one in gone if (one.pool, one.name) in self._claimed]
        found = sorted(loaded, key=lambda one: (one.name, one.pool, -one.facts.created))
        if found == self.loaded and self.why_not_ready is None:
            return False
        made = public_models(found, self._policy, self._defaults)
        self._take(found, self._policy, self._continued(made, found))
        if not self.models:
            nothing = NotReady("Triton serves no model that is known here", NOTHING_SERVED)
            raise next(iter(self.unfit.values()), nothing)
        self.why_not_ready = None
        self.epoch += 1
        return True

    def cards_under(self, policy: Mapping[str, ModelEntry]) -> Iterator[ModelCard]:
        """The cards that `replace_policy` would make.

        Raises:
            NotReady: an entry does not fit its model, or its limits cannot be enforced.
        """
        return _cards(self._fitting(policy))

    def replace_policy(self, policy: Mapping[str, ModelEntry]) -> None:
        """Makes the cards of the loaded models anew. Running requests keep the cards they have.

        Raises as `cards_under`, and has changed nothing then.
        """
        self._take(self.loaded, policy, self._fitting(policy))

    def _fitting(self, policy: Mapping[str, ModelEntry]) -> Models:
        made = public_models(self.loaded, policy, self._defaults)
        for unfit in (model.unfit for model in made.values() if model.unfit is not None):
            raise unfit
        return made

    def _continued(self, made: Models, loaded: list[LoadedModel]) -> Models:
        """Keeps the old cards of models that no longer fit, where their builds are still there."""
        there = [(one.pool, one.name, one.facts) for one in loaded]
        found = dict(made)
        for name, old in self.models.items():
            main = made.get(old.cards[0].parent or name)
            if main is not None and main.unfit is not None:
                builds = ((card, (card.pool, card.triton_model, card.loaded)) for card in old.cards)
                cards = tuple(card for card, build in builds if build in there)
                found[name] = replace(old, cards=cards, unfit=main.unfit)
        return found

    def _take(
        self, loaded: list[LoadedModel], policy: Mapping[str, ModelEntry], found: Models
    ) -> None:
        self._policy, self.loaded = policy, loaded
        self.unfit = {name: one.unfit for name, one in found.items() if one.unfit is not None}
        self.models = {name: model for name, model in found.items() if model.cards}
        # a public name that is served comes before an alias of a model that is not
        ordered = sorted(found.values(), key=lambda model: bool(model.cards))
        # by name and alias; also those of models.yaml that Triton has not loaded
        self._named = {name: model for model in ordered for name in model.names}
        self._said_rows = {
            id(card.loaded): card.facts.rows for card in self.every_card() if card.facts.says_rows
        }
        self.plans: Mapping[str, DeploymentPlan] = {name: found[name].plan for name in policy}
        self._claimed = claimed(policy)
        self._queues = {f"{card.pool}/{card.triton_model}" for card in self.every_card()}

    def suspend(self, reason: NotReady, *, has_endpoints: bool = True) -> None:
        """Stops serving: no endpoint is ready, or their models do not fit the contract."""
        self.why_not_ready, self._has_endpoints = reason, has_endpoints

    @property
    def is_holding(self) -> bool:
        """Whether no endpoint is ready, and requests wait for one."""
        return self._holds and not self._has_endpoints and bool(self.models)

    def is_held(self, card: ModelCard) -> bool:
        """Whether requests for this model wait for an endpoint that serves it. If the first one has
        just come, they need not wait.
        """
        if not self._holds:
            return False
        is_away = self.why_not_ready is None and not self._is_available(card)
        return self.is_holding or is_away

    def holds_queue(self, queue: str) -> bool:
        """Whether requests of this queue `pool/Triton model` wait while no endpoint serves it."""
        return self._holds and queue in self._queues

    def check_available(self, card: ModelCard, *, or_held: bool = False) -> None:
        """Raises ModelUnavailable: Triton is not ready, or no endpoint serves the model.

        or_held: unless requests for the model wait for an endpoint.
        """
        if or_held and self._holds and self.is_held(card):
            return
        if self.why_not_ready is not None:
            raise self._unavailable()
        if (card.parent or card.name) in self.away:
            raise ModelUnavailable("The model is not available at present: no server has it ready.")

    def _unavailable(self) -> ModelUnavailable:
        category = self.why_not_ready and self.why_not_ready.category
        return ModelUnavailable(NOT_AVAILABLE.format(category))

    # What the current caller may use. Each method may raise ModelUnavailable: no model is known.

    def serving(self, name: str | None) -> ServedModel:
        """The model that answers a request for this one: itself, or one of its fallbacks.

        Without an available model among them it is the model itself, whose request then fails, or
        waits for it. None: the first one that the caller may use.

        Raises:
            UnknownModel: no model has this name or alias.
            RequestError: the caller's key does not allow it, or not any.
        """
        if name is None:
            name = self.asked(None).name
        model = follower = self._named.get(name)
        if model is not None and not model.is_allowed:
            raise model_not_allowed(name)
        if not self.models:
            raise self._unavailable()
        for _ in range(1 + MAX_FALLBACKS):
            if follower is None:
                break
            if self.can_serve(follower) and (follower is model or follower.is_allowed):
                card = follower.cards[0]
                if follower is model:
                    return ServedModel(card=card, name=name)
                return ServedModel(card=card, name=card.name, fallback_from=name)
            follower = None if follower.fallback is None else self._named.get(follower.fallback)
        return ServedModel(card=self.model(name).cards[0], name=name)

    def asked(self, name: str | None, *, hides: bool = False) -> ModelCard:
        """The card of a model, or for None of the first one that the caller may use.

        Raises:
            UnknownModel: no model has this name or alias; with `hides`, none that is allowed.
            RequestError: the caller's key does not allow it, or not any.
        """
        if name is None:
            if (card := next(iter(self.listed().values()), None)) is None:
                raise model_not_allowed(self.cards()[0].name)
            return card
        if (known := self._named.get(name)) is not None and not known.is_allowed and self.models:
            raise self._unknown(name) if hides else model_not_allowed(name)
        return self.model(name).cards[0]

    def listed(self) -> dict[str, ModelCard]:
        """By name and alias, the models that the caller may use, in the order of models.yaml."""
        if not self.models:
            raise self._unavailable()
        return {
            name: model.cards[0]
            for model in self.models.values()
            if model.is_allowed
            for name in model.names
            if self._named[name] is model  # not an alias that is the name of another model
        }

    # All models, whoever calls

    def model(self, name: str) -> PublicModel:
        """A model that is served, even while Triton is unavailable.

        Raises:
            UnknownModel: no model has this name or alias.
            ModelUnavailable: none is known yet; of one that may be at zero, nothing but its name;
                or it does not fit its entry.
        """
        if not self.models:
            raise self._unavailable()
        model = self._named.get(name)
        if model is not None and not model.cards:
            if model.unfit is not None:
                raise ModelUnavailable(NOT_AVAILABLE.format(model.unfit.category))
            if self._holds:
                raise ModelUnavailable(NEVER_SEEN)
        if model is None or not model.cards:
            raise self._unknown(name)
        return model

    def _unknown(self, name: str) -> UnknownModel:
        """Suggests only what the caller may use. Compares few names: this is the event loop."""
        if len(name) > LONGEST_COMPARED:
            return UnknownModel(name)
        known = islice(self.listed(), MOST_COMPARED)
        return UnknownModel(name, next(iter(get_close_matches(name, known, n=1)), None))

    def cards(self) -> tuple[ModelCard, ...]:
        """All models, in the order of models.yaml; of each its first card.

        Raises:
            ModelUnavailable: none is known yet.
        """
        if not self.models:
            raise self._unavailable()
        return tuple(model.cards[0] for model in self.models.values())

    def every_card(self) -> Iterator[ModelCard]:
        """Every card of every model."""
        return _cards(self.models)

    def is_available(self, card: ModelCard) -> bool:
        """Whether an endpoint serves this build now."""
        return self.why_not_ready is None and self._is_available(card)

    def can_serve(self, model: PublicModel) -> bool:
        """Whether any build in any deployment of this model is served now."""
        return any(map(self._is_available, model.cards))

    def has_build(self, card: ModelCard) -> bool:
        """Whether the model of this card is still this build, or one of its builds."""
        model = self.models.get(card.name)
        return model is not None and any(card.is_same_build(one) for one in model.cards)

    def said_rows(self, facts: ModelFacts) -> int | None:
        """The rows of this engine, as it says itself or else as models.yaml does."""
        return facts.rows if facts.says_rows else self._said_rows.get(id(facts))

    @property
    def own_models(self) -> list[PublicModel]:
        """Without adapters."""
        return [model for model in self.models.values() if not model.is_adapter]

    def unserved(self) -> tuple[str, ...]:
        """The models that are known and that no endpoint serves now; without their adapters."""
        return tuple(one.names[0] for one in self.own_models if not self.can_serve(one))

    def unseen(self) -> set[tuple[str, str]]:
        """Pool and Triton model of deployments in models.yaml that nothing is known of."""
        return self._claimed - {(one.pool, one.name) for one in self.loaded}

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
        if not self.models:
            raise self._unavailable()
        served = {(card.pool, card.triton_model) for card in self.every_card()} | self._claimed
        return frozenset(
            name
            for one in self.loaded
            if one.facts.adopted is None or (one.pool, one.name) in served
            for name in one.triton_models
        )


def _cards(models: Models) -> Iterator[ModelCard]:
    return (card for model in models.values() for card in model.cards)


class ModelInfo:
    """The metric that says which Triton models serve a public model: prometheus_client's Collector.

    An engine's own metrics have the label `model`, too: the name of its Triton model. A deployment
    may give that another name than the public one, and a LoRA adapter has its model's.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """May be called by any thread."""
        text = "1 for each Triton model that serves a public model"
        labels = ("model", "pool", "triton_model")
        family = GaugeMetricFamily("proxy_model_info", text, labels=labels)
        cards = self._registry.every_card()
        for place in sorted({(one.name, one.pool, one.triton_model) for one in cards}):
            family.add_metric(place, 1)
        yield family
        text = "1 for each Triton model that models.yaml names and no endpoint has served yet"
        family = GaugeMetricFamily("proxy_model_unseen", text, labels=("pool", "triton_model"))
        for pool, model in sorted(self._registry.unseen()):
            family.add_metric((pool, model), 1)
        yield family
