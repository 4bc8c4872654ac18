"""Maps public names and aliases to model cards.

A card joins the facts of a model that Triton has loaded with the policy in models.yaml. Filled by
`readiness`, read by the service and the routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from triton_openai.build_engines.models_file import ModelEntry
from triton_openai.build_engines.price_entry import PriceEntry
from triton_openai.proxy.domain.engine import NotReady
from triton_openai.proxy.domain.errors import ModelUnavailable, UnknownModel
from triton_openai.proxy.domain.lifecycle import NO_END, Lifecycle
from triton_openai.proxy.domain.model import LoadedModel, ModelCard
from triton_openai.proxy.domain.price import FREE, Price
from triton_openai.proxy.domain.request import Sampling
from triton_openai.proxy.domain.request_limits import RequestLimits
from triton_openai.proxy.domain.server_tools import ServerTool, ServerTools


class Registry:
    """Keeps its cards while Triton is unavailable; `why_not_ready` then gives the reason.

    policy: entries by Triton model name. A loaded model without an entry is served with defaults.
    limits: limits of requests to every model; a model's entry can only lower them.
    """

    def __init__(
        self,
        policy: Mapping[str, ModelEntry],
        limits: RequestLimits | None = None,
        *,
        callers_control_tokens: str = "plain",
    ) -> None:
        self._policy = policy
        self._limits = limits or RequestLimits()
        self._callers_control_tokens = callers_control_tokens
        self._loaded: list[LoadedModel] = []
        self._cards: tuple[ModelCard, ...] = ()
        self._by_name: dict[str, ModelCard] = {}
        self._why_not_ready: NotReady | None = NotReady("", "Triton has not been reached yet")
        self.epoch = 0  # counts how often the models changed or Triton came back

    @property
    def why_not_ready(self) -> NotReady | None:
        """None while every model can be served."""
        return self._why_not_ready

    def serve(self, loaded: Iterable[LoadedModel]) -> bool:
        """Makes the cards of the models that Triton has ready, in the order of models.yaml.

        Returns whether the models have changed, or Triton has come back, since the last call.

        Raises:
            NotReady: the limits of one of the models cannot be enforced.
        """
        found = _ordered(loaded, self._policy)
        if found == self._loaded and self._why_not_ready is None:
            return False
        self._take(found, self._policy)
        self._why_not_ready = None
        self.epoch += 1
        return True

    def cards_under(self, policy: Mapping[str, ModelEntry]) -> tuple[ModelCard, ...]:
        """The cards that `replace_policy` would make.

        Raises:
            NotReady: the limits of one of the models cannot be enforced.
        """
        return self._made(_ordered(self._loaded, policy), policy)

    def replace_policy(self, policy: Mapping[str, ModelEntry]) -> None:
        """Makes the cards of the loaded models anew. Running requests keep the cards they have.

        Raises as `cards_under`, and has changed nothing then.
        """
        self._take(_ordered(self._loaded, policy), policy)

    def _take(self, found: list[LoadedModel], policy: Mapping[str, ModelEntry]) -> None:
        cards = self._made(found, policy)
        self._loaded, self._policy, self._cards = found, policy, cards
        self._by_name = {name: card for card in cards for name in (card.name, *card.aliases)}

    def _made(
        self, found: list[LoadedModel], policy: Mapping[str, ModelEntry]
    ) -> tuple[ModelCard, ...]:
        usual = self._callers_control_tokens
        return tuple(
            replace(card, protects_control_tokens=_protects(policy.get(model.name), usual))
            for model in found
            for card in _cards(model, policy.get(model.name), self._limits)
        )

    def suspend(self, reason: NotReady) -> None:
        """Stops serving: Triton is unavailable, or its models do not fit the contract."""
        self._why_not_ready = reason

    def cards(self) -> tuple[ModelCard, ...]:
        """All models, in the order of models.yaml.

        Raises:
            ModelUnavailable: none is known yet.
        """
        if not self._cards:
            raise self._unavailable()
        return self._cards

    def default(self) -> ModelCard:
        """The first model, for requests that name none.

        Raises:
            ModelUnavailable: none is known yet.
        """
        return self.cards()[0]

    def found(self, name: str) -> ModelCard | None:
        """The card of a model, even while Triton is unavailable; None: none is loaded.

        Raises:
            ModelUnavailable: none is known yet.
        """
        self.cards()
        return self._by_name.get(name)

    def known(self, name: str) -> ModelCard:
        """The card of a model, even while Triton is unavailable.

        Raises:
            UnknownModel: no model has this name or alias.
            ModelUnavailable: none is known yet.
        """
        card = self.found(name)
        if card is None:
            raise UnknownModel(name)
        return card

    def names_of(self, name: str) -> tuple[str, ...]:
        """Name and aliases of the model with this name or alias, loaded or not; empty: none has."""
        if (card := self._by_name.get(name)) is not None:
            return (card.name, *card.aliases)
        named = ((one, *entry.aliases) for one, entry in self._policy.items())
        return next((names for names in named if name in names), ())

    def fallback_of(self, name: str) -> str | None:
        """The public model that answers in place of this one, as `names_of`."""
        if (card := self._by_name.get(name)) is not None:
            return card.fallback
        entry = self._policy.get(next(iter(self.names_of(name)), ""))
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


def _protects(entry: ModelEntry | None, usual: str) -> bool:
    """Whether control tokens in callers' texts are tokenized as plain text."""
    own = None if entry is None else entry.callers_control_tokens
    return (own or usual) == "plain"


def _ordered(loaded: Iterable[LoadedModel], policy: Mapping[str, ModelEntry]) -> list[LoadedModel]:
    """In the order of models.yaml, then by name."""
    order = {name: position for position, name in enumerate(policy)}
    return sorted(loaded, key=lambda model: (order.get(model.name, len(order)), model.name))


def _cards(
    model: LoadedModel, entry: ModelEntry | None, limits: RequestLimits
) -> Iterator[ModelCard]:
    """The card of the model and of each of its LoRA adapters, which share all but the aliases."""
    if entry is not None:
        limits = limits.and_also(RequestLimits(**entry.limits.model_dump()))
    if limits.need_the_tokenizer and "limits" not in model.capabilities:
        raise NotReady(
            f"model {model.name!r} was built by a version that cannot enforce the limits "
            "'max_tokens' and 'prompt_tokens': build it again, or remove these limits",
            "the limits of a model cannot be enforced",
        )
    card = replace(_card(model, entry), limits=limits)
    yield card
    for name in model.facts.adapters:
        yield replace(card, name=name, parent=card.name, aliases=())


def _card(model: LoadedModel, entry: ModelEntry | None) -> ModelCard:
    if entry is None:
        return ModelCard(
            name=model.name,
            triton_model=model.name,
            facts=model.facts,
            capabilities=model.capabilities,
        )
    defaults = entry.sampling
    return ModelCard(
        name=model.name,
        triton_model=model.name,
        facts=model.facts,
        capabilities=model.capabilities,
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
