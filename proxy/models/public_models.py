"""Public models: what Triton has loaded, joined with what models.yaml says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from build_engines.deployments import DeploymentEntry
from build_engines.models_file import ModelEntry, PriceEntry, RemoteEntry
from proxy.domain.endpoints import DEFAULT_POOL
from proxy.domain.engine import NotReady
from proxy.domain.identity import current_caller
from proxy.domain.model import FREE, NO_END, Kind, Lifecycle, LoadedModel, ModelCard, Price
from proxy.domain.request import Sampling
from proxy.domain.request_limits import RequestLimits
from proxy.domain.server_tools import ServerTool, ServerTools
from proxy.models.adoption import adopted, check_effects
from proxy.models.deployments import DeploymentPlan, plan_of

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicModel:
    """names: the public name, then the aliases; an adapter has no aliases. cards: of each build in
    each deployment; empty: Triton has not loaded it, or it does not fit its entry. fallback: the
    public model that answers while no deployment of this one is available. unfit: why the models
    that are loaded now cannot be served with its entry, or its limits be enforced on them.
    """

    names: tuple[str, ...]
    cards: tuple[ModelCard, ...]
    plan: DeploymentPlan
    fallback: str | None
    unfit: NotReady | None = None

    @property
    def is_adapter(self) -> bool:
        return bool(self.cards) and self.cards[0].parent is not None

    @property
    def is_allowed(self) -> bool:
        """Whether the caller's key allows the model by its name or by any alias."""
        models = current_caller.get().models
        return not models.patterns or any(map(models.allows, self.names))


Models = Mapping[str, PublicModel]


@dataclass(frozen=True, slots=True)
class CardDefaults:
    """What holds for every model. A model's own entry can only lower the limits."""

    limits: RequestLimits
    callers_control_tokens: str


def public_models(
    loaded: Sequence[LoadedModel], policy: Mapping[str, ModelEntry], defaults: CardDefaults
) -> Models:
    """By public name: those of models.yaml in its order, then the others by name.

    The adapters of a model follow it.
    """
    found: dict[str, PublicModel] = {}
    for name, entry in (*policy.items(), *_others(loaded, policy)):
        plan, unfit = plan_of(entry), None
        adapters = entry.adapters if isinstance(entry, RemoteEntry) else ()
        cards: dict[str, list[ModelCard]] = {one: [] for one in (name, *adapters)}
        try:
            for card in _every_card(name, entry, plan, loaded, defaults):
                cards.setdefault(card.name, []).append(card)
        except NotReady as error:
            unfit = error
        for public, each in cards.items():
            found[public] = PublicModel(
                names=(public, *entry.aliases) if public == name else (public,),
                cards=() if unfit else tuple(each),
                plan=plan,
                fallback=entry.fallback,
                unfit=unfit,
            )
    return found


def _every_card(
    name: str,
    entry: ModelEntry,
    plan: DeploymentPlan,
    loaded: Sequence[LoadedModel],
    defaults: CardDefaults,
) -> Iterator[ModelCard]:
    """Raises NotReady: the entry does not fit a model, or its limits cannot be enforced."""
    places = [(one.pool, one.model or name) for one in plan.deployments]
    there = [one for one in loaded if (one.pool, one.name) in places]
    # a deployment that no Triton has yet may be of the kind that an option is for
    if isinstance(entry, RemoteEntry) and {(o.pool, o.name) for o in there} == {*places}:
        check_effects(name, entry, there)
    for deployment, place in zip(plan.deployments, places, strict=True):
        for model in there:
            is_there = deployment.version in (None, *model.versions)
            if (model.pool, model.name) != place or not is_there:
                continue
            if (complete := _complete(name, model, entry)) is not None:
                yield from _cards(name, model, complete, deployment, entry, defaults)


def _others(
    loaded: Sequence[LoadedModel], policy: Mapping[str, ModelEntry]
) -> Iterator[tuple[str, ModelEntry]]:
    """The models that Triton has loaded and models.yaml lacks, under Triton's names.

    A Triton model that an entry's deployment names is not also served under its own name. One that
    several pools have is served from the pool `default`, or else from the first by name.
    """
    named = claimed(policy)
    pools: dict[str, str] = {}
    for model in loaded:
        if model.facts.kind is Kind.TEXT:  # only its entry could say which tensors it has
            continue
        if (model.pool, model.name) not in named and model.name not in policy:
            pool = pools.setdefault(model.name, model.pool)
            if model.pool == DEFAULT_POOL != pool:
                pools[model.name] = DEFAULT_POOL
    for name, pool in sorted(pools.items()):
        yield name, ModelEntry(deployments=(DeploymentEntry(name="default", pool=pool),))


def claimed(policy: Mapping[str, ModelEntry]) -> set[tuple[str, str]]:
    """Pool and Triton model of every deployment that models.yaml names."""
    return {
        (one.pool, one.model or name)
        for name, entry in policy.items()
        for one in plan_of(entry).deployments
    }


def _complete(name: str, model: LoadedModel, entry: ModelEntry) -> LoadedModel | None:
    """With what its entry says of it; None, and a line in the log, where that does not fit."""
    given = model.facts.adopted
    if given is None or model.facts.pooling is not None:
        return model
    found = adopted(model, given, entry if isinstance(entry, RemoteEntry) else RemoteEntry())
    if found is None:
        logger.warning(
            "model not served",
            model=name,
            triton_model=model.name,
            inputs=dict(given.inputs),
            outputs=dict(given.outputs),
            advice="name its tensors in models.yaml: tensors: {prompt: …, text: …}",
        )
    return found


def _cards(
    name: str,
    loaded: LoadedModel,
    model: LoadedModel,
    deployment: DeploymentEntry,
    entry: ModelEntry,
    defaults: CardDefaults,
) -> Iterator[ModelCard]:
    """The card of a build, and of each of its LoRA adapters. name: the public one.

    model: `loaded` with what models.yaml says of an adopted one.

    Raises:
        NotReady: the model's limits cannot be enforced.
    """
    limits = defaults.limits.and_also(RequestLimits(**entry.limits.model_dump()))
    if limits.need_the_tokenizer and "limits" not in model.capabilities:
        raise NotReady(
            f"model {model.name!r} cannot enforce the limits 'max_tokens' and 'prompt_tokens': "
            "build it again with this version, or add to an adopted model its `tokenizer`, and "
            "to one with `tensors` the input for max_tokens, or remove these limits",
            "the limits of a model cannot be enforced",
        )
    facts = model.facts
    if isinstance(entry.chat_template, str):
        facts = replace(facts, chat_template=entry.chat_template, tool_template=None)
    card = ModelCard(
        name=name,
        triton_model=model.name,
        pool=model.pool,
        deployment=deployment.name,
        version=deployment.version,
        facts=facts,
        loaded=loaded.facts,
        capabilities=model.capabilities,
        limits=limits,
        protects_control_tokens=(
            (entry.callers_control_tokens or defaults.callers_control_tokens) == "plain"
        ),
        takes_template_values=entry.chat_template_kwargs,
        takes_templates=entry.chat_template is True,
        tool_parser=entry.tool_parser,
        reasoning_parser=entry.reasoning_parser,
        max_retries=entry.max_retries,
        streams_unchecked=entry.stream_mode == "optimistic",
        owned_by=entry.owned_by,
        sampling=Sampling(temperature=entry.sampling.temperature, top_p=entry.sampling.top_p),
        server_tools=ServerTools(
            tools=tuple(
                ServerTool(name=tool, **dict(one)) for tool, one in entry.server_tools.items()
            ),
            max_rounds=entry.max_tool_rounds,
            max_seconds=entry.max_tool_seconds,
        ),
        price=_price(entry.price),
        lifecycle=_lifecycle(entry),
    )
    yield card
    for adapter in model.facts.adapters:
        yield replace(card, name=adapter, parent=name)


def _lifecycle(entry: ModelEntry) -> Lifecycle:
    if entry.deprecated is None and entry.sunset is None:
        return NO_END
    return Lifecycle(deprecated=entry.deprecated, sunset=entry.sunset, link=entry.lifecycle_link)


def _price(entry: PriceEntry | None) -> Price:
    if entry is None:
        return FREE
    cached = entry.input if entry.cached_input is None else entry.cached_input
    return Price(input=entry.input, cached_input=cached, output=entry.output)
