"""The deployment, and the build of the model there, that a request goes to. Used by the service."""

from __future__ import annotations

from hashlib import blake2b
from random import Random

from proxy.domain.endpoints import Decisions
from proxy.domain.errors import ModelUnavailable
from proxy.domain.identity import current_caller
from proxy.domain.model import ModelCard
from proxy.domain.record import running_record
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    SinglePrompt,
    TextPrompt,
)
from proxy.models.deployments import DeploymentPlan, RouteHints, Sticky, choose
from proxy.models.registry import Registry

BEGINNING = 512  # characters or ids of a prompt without turns, by which a conversation is known


class DeploymentChooser:
    """decisions: operators' weights; None: those of models.yaml hold."""

    def __init__(
        self, registry: Registry, decisions: Decisions | None = None, random: Random | None = None
    ) -> None:
        self._registry = registry
        self._decisions = decisions
        self._random = random or Random()

    def cards(self, request: GenerationRequest, card: ModelCard) -> list[ModelCard]:
        """The cards that may take a request for the model of `card`: the one to try first comes
        first, and others follow that may be able to do what it cannot.

        Raises:
            ModelUnavailable: no deployment can take it now.
        """
        model = self._registry.model(card.name)
        if len(model.cards) == 1:
            return [model.cards[0]]
        available = [one for one in model.cards if self._registry.is_available(one)]
        if not available:
            available = [one for one in model.cards if self._registry.is_held(one)]
        first = self._first(request, card, model.plan, available)
        standbys = {one.name for one in model.plan.deployments if one.standby} - {first.deployment}
        return sorted(
            (one for one in available if one.deployment not in standbys),
            key=lambda one: (one is not first, one.deployment != first.deployment),
        )

    def _first(
        self,
        request: GenerationRequest,
        card: ModelCard,
        plan: DeploymentPlan,
        available: list[ModelCard],
    ) -> ModelCard:
        weights = (
            None if self._decisions is None else self._decisions.weights(card.parent or card.name)
        )
        names = {one.deployment for one in available}
        chosen = choose(plan, self._hints(request, plan), names, weights)
        if chosen is None:  # none is ready, or none of those that are has a share
            raise ModelUnavailable(f"The model {card.name!r} has no deployment that is ready.")
        return self._build([one for one in available if one.deployment == chosen.name])

    def _build(self, builds: list[ModelCard]) -> ModelCard:
        """At random by their rows: while an update rolls, its first endpoint must not get all."""
        if len(builds) == 1:
            return builds[0]
        rows = [max(self._registry.rows(one), 1) for one in builds]
        return self._random.choices(builds, rows)[0]

    def _hints(self, request: GenerationRequest, plan: DeploymentPlan) -> RouteHints:
        caller = current_caller.get()
        is_by_conversation = plan.sticky is Sticky.CONVERSATION
        return RouteHints(
            number=self._random.random(),
            tenant=caller.tenant,
            key=caller.key_id,
            user=request.user,
            conversation=_beginning(request.prompts[0]) if is_by_conversation else None,
            headers=_headers(plan.header_names),
        )


def _headers(names: frozenset[str]) -> dict[str, str]:
    """Those of the running task's request, by lower-case name."""
    if not names:
        return {}
    given = ((name.decode("latin-1"), value) for name, value in running_record().headers)
    return {name: value.decode("latin-1") for name, value in given if name in names}


def _beginning(prompt: SinglePrompt) -> bytes:
    """A hash of what all requests of one conversation begin with: of a chat, the turns up to the
    user's first one.
    """
    digest = blake2b(digest_size=16)
    if isinstance(prompt, ChatPrompt):
        for message in prompt.messages:
            digest.update(f"{message.role}\0{message.content}\0".encode("utf-8", "surrogatepass"))
            if message.role == "user":
                break
    elif isinstance(prompt, TextPrompt):
        digest.update(prompt.text[:BEGINNING].encode("utf-8", "surrogatepass"))
    else:
        digest.update(repr(prompt.ids[:BEGINNING]).encode())
    return digest.digest()
