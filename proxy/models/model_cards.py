"""What Triton has loaded, with what models.yaml says of it: the cards of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from build_engines.models_file import ModelEntry
from build_engines.price_entry import PriceEntry
from proxy.domain.engine import NotReady
from proxy.domain.lifecycle import NO_END, Lifecycle
from proxy.domain.model import LoadedModel, ModelCard
from proxy.domain.price import FREE, Price
from proxy.domain.request import Sampling
from proxy.domain.request_limits import RequestLimits
from proxy.domain.server_tools import ServerTool, ServerTools
from proxy.models.deployments import Deployment


@dataclass(frozen=True, slots=True)
class CardDefaults:
    """What holds for every model. A model's own entry can only lower the limits."""

    limits: RequestLimits
    callers_control_tokens: str


def cards(
    name: str,
    model: LoadedModel,
    deployment: Deployment,
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
