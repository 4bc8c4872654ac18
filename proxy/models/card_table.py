"""The cards of all public models: what Triton has loaded, with what models.yaml says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from build_engines.deployments import DeploymentEntry
from build_engines.models_file import ModelEntry, PriceEntry
from proxy.domain.endpoints import DEFAULT_POOL
from proxy.domain.engine import NotReady
from proxy.domain.model import FREE, NO_END, Lifecycle, LoadedModel, ModelCard, Price
from proxy.domain.request import Sampling
from proxy.domain.request_limits import RequestLimits
from proxy.domain.server_tools import ServerTool, ServerTools
from proxy.models.deployments import DEFAULT_PLAN, DeploymentPlan, plan_of

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


@dataclass(frozen=True, slots=True)
class CardDefaults:
    """What holds for every model. A model's own entry can only lower the limits."""

    limits: RequestLimits
    callers_control_tokens: str


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
            place = (deployment.pool, deployment.model or name)
            for model in loaded:
                if (model.pool, model.name) == place and _has_version(model, deployment):
                    for card in _cards(name, model, deployment, entry, defaults):
                        cards.setdefault(card.name, []).append(card)
    names = {
        name: public for public, (card, *_) in cards.items() for name in (public, *card.aliases)
    }
    variants = {name: tuple(each) for name, each in cards.items()}
    plans = {name: plan_of(entry) for name, entry in policy.items()}
    return CardTable(variants, names, plans, policy)


def _has_version(model: LoadedModel, deployment: DeploymentEntry) -> bool:
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
        plan = plan_of(entry)
        claimed |= {(one.pool, one.model or name) for one in plan.deployments}
        yield name, plan, entry
    others: dict[str, str] = {}
    for model in found:
        if (model.pool, model.name) not in claimed and model.name not in policy:
            pool = others.setdefault(model.name, model.pool)
            if model.pool == DEFAULT_POOL != pool:
                others[model.name] = DEFAULT_POOL
    for name, pool in sorted(others.items()):
        (default,) = DEFAULT_PLAN.deployments
        own = default.model_copy(update={"pool": pool})
        yield name, DeploymentPlan(deployments=(own,)), None


def _cards(
    name: str,
    model: LoadedModel,
    deployment: DeploymentEntry,
    entry: ModelEntry | None,
    defaults: CardDefaults,
) -> Iterator[ModelCard]:
    """The card of the model and of each of its LoRA adapters, which share all but the aliases.

    Args:
        name: the public one.
        entry: None: models.yaml has none, and the model is served with defaults.

    Raises:
        NotReady: the model's limits cannot be enforced.
    """
    limits = defaults.limits
    if entry is not None:
        limits = limits.and_also(RequestLimits(**entry.limits.model_dump()))
    if limits.need_the_tokenizer and "limits" not in model.capabilities:
        raise NotReady(
            f"model {model.name!r} was built by a version that cannot enforce the limits "
            "'max_tokens' and 'prompt_tokens': build it again, or remove these limits",
            "the limits of a model cannot be enforced",
        )
    card = _bare(name, model)
    if entry is not None:
        card = _with_policy(card, entry)
    card = replace(
        card,
        limits=limits,
        deployment=deployment.name,
        version=deployment.version,
        protects_control_tokens=_protects(entry, defaults),
    )
    yield card
    for adapter in model.facts.adapters:
        yield replace(card, name=adapter, parent=card.name, aliases=())


def _protects(entry: ModelEntry | None, defaults: CardDefaults) -> bool:
    """Whether control tokens in callers' texts are tokenized as plain text."""
    own = None if entry is None else entry.callers_control_tokens
    return (own or defaults.callers_control_tokens) == "plain"


def _bare(name: str, model: LoadedModel) -> ModelCard:
    return ModelCard(
        name=name,
        triton_model=model.name,
        pool=model.pool,
        facts=model.facts,
        capabilities=model.capabilities,
    )


def _with_policy(card: ModelCard, entry: ModelEntry) -> ModelCard:
    defaults = entry.sampling
    return replace(
        card,
        takes_template_values=entry.chat_template_kwargs,
        takes_templates=entry.chat_template,
        tool_parser=entry.tool_parser,
        reasoning_parser=entry.reasoning_parser,
        max_retries=entry.max_retries,
        streams_unchecked=entry.stream_mode == "optimistic",
        aliases=entry.aliases,
        owned_by=entry.owned_by,
        sampling=Sampling(temperature=defaults.temperature, top_p=defaults.top_p),
        server_tools=_server_tools(entry),
        price=_price(entry.price),
        lifecycle=_lifecycle(entry),
        fallback=entry.fallback,
    )


def _lifecycle(entry: ModelEntry) -> Lifecycle:
    if entry.deprecated is None and entry.sunset is None:
        return NO_END
    return Lifecycle(deprecated=entry.deprecated, sunset=entry.sunset, link=entry.lifecycle_link)


def _price(entry: PriceEntry | None) -> Price:
    if entry is None:
        return FREE
    cached = entry.input if entry.cached_input is None else entry.cached_input
    return Price(input=entry.input, cached_input=cached, output=entry.output)


def _server_tools(entry: ModelEntry) -> ServerTools:
    return ServerTools(
        tools=tuple(
            ServerTool(
                name=name,
                url=tool.url,
                method=tool.method,
                description=tool.description,
                parameters=tool.parameters,
                headers=tool.headers,
                timeout_s=tool.timeout_s,
                max_response_bytes=tool.max_response_bytes,
                allows_private_addresses=tool.allow_private_addresses,
            )
            for name, tool in entry.server_tools.items()
        ),
        max_rounds=entry.max_tool_rounds,
        max_seconds=entry.max_tool_seconds,
    )
