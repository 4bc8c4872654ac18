"""Prepares a request for the engine, once: what is decided before any of it is sent, as a Plan.

Refuses every request that cannot be served. `Preparation.prepare` has the steps in their order.
Called by the service, and by answer_streams for later attempts and rounds of tools.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.request_size import apply_model_limits, check_copies, limit_log_probs
from proxy.access.start_gate import StartGate
from proxy.domain import plain_spans
from proxy.domain.batch_line import current_line
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest, unsupported
from proxy.domain.identity import current_caller
from proxy.domain.image import Image
from proxy.domain.model import ModelCard, Pooling
from proxy.domain.record import RequestRecord
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    Message,
    PromptBatch,
    SinglePrompt,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.sandbox import Sandbox
from proxy.generation.answer_format import AnswerFormat, AnswerFormats
from proxy.generation.prompt_writer import PromptWriter, adds_special_tokens
from proxy.language.prompting import control_tokens
from proxy.language.prompting.callers_text import RenderedPrompt
from proxy.language.prompting.chat_template import EFFORT, NONE, SWITCHES, VERBOSITY, read_by
from proxy.language.structured.constraint_errors import map_constraint_error
from proxy.language.syntax.output_parser import OutputParser
from proxy.language.syntax.parsers import CardSyntax, syntax_of
from proxy.models.deployment_chooser import DeploymentChooser
from proxy.server_tools.tool_loop import offer_server_tools

UNSEEN = "[The tool has returned an image here. This model reads no images.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the choices of one request share.

    request: the caller's, within the operator's limits and with the server's tools. generations:
    answers to all prompts together.
    engine_requests: what the engine is sent for the first choice of each prompt.
    prompt_text: of a chat, as the parser of its answer reads it; empty for other prompts.
    may_think: the model may begin inside a thought that the prompt does not open.
    special_tokens: those whose text belongs to the answer, by id.
    """

    request: GenerationRequest
    card: ModelCard
    syntax: CardSyntax
    format: AnswerFormat
    generations: int
    engine_requests: tuple[EngineRequest, ...]
    prompt_text: str
    may_think: bool
    special_tokens: Mapping[int, bytes]

    def part(self, index: int) -> Part:
        """The plan of one choice; those of the first prompt come first."""
        at, candidate = divmod(index, self.request.candidates)
        request, engine_request = self.request.part(index), self.engine_requests[at]
        if candidate:
            sampling = request.sampling.with_defaults(self.card.sampling)
            engine_request = replace(engine_request, id=request.id, sampling=sampling)
        return Part(
            plan=self,
            index=index,
            request=request,
            engine_request=engine_request,
            counts_prompt=not candidate,
        )

    def only_part(self, index: int) -> Part:
        """The plan of a request with one choice, which stands for choice `index` of another."""
        return Part(
            plan=self,
            index=index,
            request=self.request,
            engine_request=self.engine_requests[0],
            counts_prompt=True,
        )

    def with_images(self, images: tuple[Image, ...]) -> Plan:
        """With these in the place of each chat's. Raises as `check_copies`."""
        requests = tuple(replace(each, images=images) for each in self.engine_requests)
        check_copies(self.request, requests)
        request = self.request.with_prompts(
            lambda one: replace(one, images=images) if isinstance(one, ChatPrompt) else one
        )
        return replace(self, request=request, engine_requests=requests)

    def new_parser(self) -> OutputParser | None:
        """For one answer; None: all of it is text."""
        prompt, family = self.prompt_text, self.format.tool_family
        return self.syntax.parser(self.request, prompt, family, may_be_inside=self.may_think)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one choice has of its own. `counts_prompt`: its usage includes the prompt."""

    plan: Plan
    index: int
    request: GenerationRequest
    engine_request: EngineRequest
    counts_prompt: bool


class Preparation:
    """One for the application.

    Args:
        timeout_s: of a whole request, for every model; a model's own limit can only lower it.
        isolates_caches: tenants share no cached prefix, where the engine can keep them apart.
        clamps_output: `max_tokens` over a limit is lowered to it, not refused; None for what is
            usual in the request's protocol.
        describes_images: see `leniency.with_described_results`.
        queues_by_priority: the proxy's own queue orders requests for models that say their rows,
            also those for engines that take no priority.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        gate: StartGate,
        limiter: RequestLimiter,
        deployments: DeploymentChooser,
        *,
        timeout_s: float,
        isolates_caches: bool,
        clamps_output: bool | None = None,
        describes_images: bool = True,
        queues_by_priority: bool = False,
    ) -> None:
        self._formats = AnswerFormats(sandbox)
        self._prompts = PromptWriter(sandbox)
        self._gate = gate
        self._limiter = limiter
        self._deployments = deployments
        self._timeout_s = timeout_s
        self._isolates_caches = isolates_caches
        self._clamps_output = clamps_output
        self._describes_images = describes_images
        self._queues_by_priority = queues_by_priority

    async def learn(self, card: ModelCard) -> None:
        """Does once what chats with the model need, before the first of them."""
        await asyncio.to_thread(control_tokens.prepare, card)
        await self._prompts.learn(card)

    async def prepare(
        self,
        request: GenerationRequest,
        card: ModelCard,
        record: RequestRecord | None = None,
        *,
        is_held: bool = False,
    ) -> Plan:
        """The plan of a caller's request, for the first build of the model that can take it:

        1. the caller's ceilings on priority and output, which `record` names
        2. the deployment, and the build of the model there
        3. hints without effect, and images that it cannot read; the tools that the server runs, and
           the ceilings of the model
        4. a bound on log-probabilities, where the answer is held until its end (`is_held`)
        5. the constraint: guides, parser and check of the answer
        6. the chat template, for each prompt of a batch
        7. the defaults of sampling; the priority and the cache that the engine is given
        8. the capabilities of the model, and the size of all copies together

        Args:
            record: None for a request that is only shown, to which no ceiling of a caller applies.

        Raises:
            RequestError: the model or the operator does not allow the request.
            RateLimited: as the sandbox.
            ModelUnavailable: no deployment can take it now.
        """
        if record is not None:
            request = self._limiter.capped(request, card, current_caller.get(), record)
        refusal: InvalidRequest | None = None
        for build in self._deployments.cards(request, card):
            try:
                offered = offer_server_tools(self._readable(request, build, record), build)
                clamps = self._clamps_output
                clamps = request.lowers_max_tokens if clamps is None else clamps
                limited = apply_model_limits(offered, build, clamps=clamps)
                if record is not None and limited.max_tokens != request.max_tokens:
                    record.clamped_max_tokens = limited.max_tokens
                if is_held:
                    limited = limit_log_probs(limited, build)
                plan = await self.prepare_again(limited, build)
            except InvalidRequest as error:
                if error.code is not ErrorCode.UNSUPPORTED_PARAMETER:
                    raise
                refusal = refusal or error
            else:
                if plan.generations > 1 and limited.embeds is None:
                    check_copies(limited, plan.engine_requests)
                return plan
        assert refusal is not None  # there is at least one build
        raise refusal

    def _readable(
        self, request: GenerationRequest, card: ModelCard, record: RequestRecord | None
    ) -> GenerationRequest:
        """Without the hints that the model's template does not read, which `record` names, and
        with words for images of tools' results, if it reads none.
        """
        request, unread = without_unread_hints(request, card)
        if record is not None:
            record.without_effect = unread
        if self._describes_images and "images" not in card.capabilities:
            request = with_described_results(request)
        return request

    async def prepare_again(self, request: GenerationRequest, card: ModelCard) -> Plan:
        """For a later attempt or round of tools, which takes the steps from 5 to 7 again: the
        caller's request passed the others, and stays with its build. Raises as `prepare` does.
        """
        generations = request.generations
        if request.embeds is None and card.facts.pooling is not None:
            raise unsupported(
                f"The model {card.name!r} does not generate: send texts to /v1/embeddings, "
                "/v1/rerank or /v1/score, or ask another model.",
                param="model",
            )
        if generations == 1 and isinstance(request.prompt, PromptBatch):
            request = request.part(0)  # a batch of one prompt is this prompt
        syntax = syntax_of(card)
        specials = syntax.visible_special_tokens(request)
        shows_specials = bool(specials)
        if card.facts.adopted is not None:  # its text has them; there are no ids to find them by
            specials = {}
            shows_specials &= "special_text" in card.capabilities
            shows_specials |= not request.skips_special_tokens
        engine_requests: list[EngineRequest] = []
        may_think = False
        try:
            if request.thinking_budget is not None and syntax.reasoning is None:
                raise unsupported(
                    f"The model {card.name!r} has no reasoning parser, so there is nothing to "
                    "limit.",
                    param="thinking_token_budget",
                )
            answer_format = await self._formats.answer_format(request, card, syntax)
            # inputs to embed differ in nothing else: one engine request has them all
            inputs = request.inputs
            for index in range(0, 1 if inputs else generations, request.candidates):
                if index:
                    await self._gate.wait()
                part = request if generations == 1 else request.part(index)
                prompt = await self._prompts.written(part, card, syntax)
                is_free = answer_format.guides.answer is None  # a guide has the thought's begin
                may_think = is_free and prompt is not None and prompt.leaves_thought_out
                engine_requests.append(
                    self._engine_request(part, card, prompt, answer_format, shows_specials, inputs)
                )
        except InvalidRequest as error:
            map_constraint_error(error, request.constraint)
            raise
        first = engine_requests[0]
        text = plain_spans.opening(first.text or "", first.plain_spans, answer_format.prefix)
        return Plan(
            request=request,
            card=card,
            syntax=syntax,
            format=answer_format,
            generations=generations,
            engine_requests=tuple(engine_requests),
            prompt_text=text,
            may_think=may_think,
            special_tokens=specials,
        )

    def _engine_request(
        self,
        request: GenerationRequest,
        card: ModelCard,
        prompt: RenderedPrompt | None,
        answer_format: AnswerFormat,
        shows_specials: bool,
        inputs: tuple[TextPrompt | TokenPrompt, ...],
    ) -> EngineRequest:
        text, spans = (None, b"") if prompt is None else (prompt.text, prompt.plain_spans)
        is_ours, has_stops = card.facts.adopted is None, bool(request.sampling.stop_token_ids)
        hides_stop_tokens = has_stops and not request.includes_stop
        logs_ids = request.logs_token_ids
        wants_ids = request.returns_token_ids or logs_ids
        if is_ours:  # the proxy finds these tokens by their ids
            wants_ids = wants_ids or hides_stop_tokens or shows_specials
        # an engine that takes no priority gets none, if the request needs none from it
        is_queued = self._queues_by_priority and card.facts.says_rows
        needs_priority = request.priority and not (is_queued or request.has_assigned_priority)
        has_priority = needs_priority or "priority" in card.capabilities
        salt = request.cache_salt
        if self._isolates_caches and "cache_salt" in card.capabilities:
            salt = f"{_cache_owner(request)}:{salt or ''}"
        adopted = card.facts.adopted
        shares_cache = adopted is None or adopted.shares_prefixes
        engine_request = EngineRequest(
            id=request.id,
            model=card,
            text=text,
            plain_spans=spans,
            images=request.prompt.images if isinstance(request.prompt, ChatPrompt) else (),
            token_ids=request.prompt.ids if isinstance(request.prompt, TokenPrompt) else None,
            add_special_tokens=adds_special_tokens(request, card),
            max_tokens=request.max_tokens,
            timeout_s=self._timeout_of(card),
            sampling=request.sampling.with_defaults(card.sampling),
            constraint=answer_format.guide(text or "", spans),
            prompt_limit=request.prompt_limit,
            echoes_prompt=request.echoes_prompt and request.echoes_tokens,
            wants_token_ids=wants_ids,
            shows_specials=shows_specials and not is_ours,
            includes_stop=request.includes_stop,
            wants_log_prob_ids=logs_ids,
            priority=request.priority if has_priority else None,
            cache_salt=salt,
            reads_cache=shares_cache or not self._isolates_caches,
            token_cap=request.token_cap,
            prompt_cap=request.prompt_cap,
            embeds=request.embeds,
            pair=request.prompt.pair if isinstance(request.prompt, TextPrompt) else None,
            batch=inputs,
        )
        _check_capabilities(engine_request, card)
        if card.facts.pooling is not None:
            _check_dimensions(engine_request, card.facts.pooling, card)
        _check_token_ids(engine_request, card)
        return engine_request

    def _timeout_of(self, card: ModelCard) -> float:
        if (line := current_line.get()) is not None:
            return line.timeout_s  # it waits for idle rows, and may lose its own many times
        return min(self._timeout_s, card.limits.timeout_s or math.inf)


def _cache_owner(request: GenerationRequest) -> str:
    """The tenant; the caller's address if callers of several tenants share one identity. It begins
    each salt, so that nobody can name another's cache.
    """
    who = current_caller.get()
    name = f"address {request.caller}" if who.is_shared else f"tenant {who.tenant}"
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _check_capabilities(request: EngineRequest, card: ModelCard) -> None:
    if missing := sorted(filter(request.needs, card.missing_capabilities)):
        pooled = {"embeddings": "has no embeddings", "scores": "does not score texts"}
        lacks = pooled.get(missing[0], "does not support this parameter")
        raise unsupported(f"The model {card.name!r} {lacks}.", param=missing[0])


def _check_dimensions(request: EngineRequest, pooling: Pooling, card: ModelCard) -> None:
    """Refuses dimensions that the model was not trained for."""
    if request.embeds and request.embeds not in (*pooling.dimensions, pooling.width):
        known = ", ".join(map(str, (*pooling.dimensions, pooling.width)))
        raise unsupported(
            f"'dimensions' is {request.embeds}: the vectors of the model {card.name!r} can have "
            f"{known}.",
            param="dimensions",
        )


def _check_token_ids(request: EngineRequest, card: ModelCard) -> None:
    """Refuses ids outside the vocabulary before the request waits for a row, as the tokenizer and
    the engine do after that; and more ids than a model that embeds can take.
    """
    sampling, size, context = request.sampling, card.facts.vocab_size, card.facts.context_length
    inputs = [each.ids for each in request.batch if isinstance(each, TokenPrompt)]
    longest = max(map(len, inputs), default=0)
    if card.facts.pooling is not None and longest > context:
        raise InvalidRequest(
            f"This model's maximum context length is {context} tokens, and an input "
            f"has {longest}. Shorten it, or split it.",
            code=ErrorCode.CONTEXT_LENGTH_EXCEEDED,
            param="prompt",
        )
    for param, ids in (
        ("prompt", request.token_ids),
        ("prompt", [*map(max, inputs)]),
        ("logit_bias", sampling.logit_bias and [token for token, _ in sampling.logit_bias]),
        ("allowed_token_ids", sampling.allowed_token_ids),
        ("stop_token_ids", sampling.stop_token_ids),
    ):
        if ids and (largest := max(ids)) >= size:
            raise InvalidRequest(
                f"{param} names token {largest}, which is outside the vocabulary of {size} tokens",
                param=param,
            )


def without_unread_hints(
    request: GenerationRequest, card: ModelCard
) -> tuple[GenerationRequest, tuple[str, ...]]:
    """The request without hints that no template of the model reads, and their names.

    Reasoning that is unwanted, and that the template cannot switch off, is ended at once. A
    caller's own template is asked by the sandbox alone.
    """
    prompt = request.prompts[0]  # those of a batch have the same hints
    if not isinstance(prompt, ChatPrompt) or prompt.template is not None:
        return request, ()
    values = dict(prompt.template_values)
    given = [name for name in (EFFORT, VERBOSITY) if name in values]
    if not given:
        return request, ()
    read = read_by(card.facts)
    unread = [name for name in given if name not in read]
    if EFFORT in unread and values[EFFORT] == NONE:
        unread.remove(EFFORT)
        if syntax_of(card).reasoning is not None and not read.intersection(SWITCHES):
            del values[EFFORT]
            request = replace(request, thinking_budget=0)
    for name in unread:
        del values[name]
    changed = request.with_prompts(
        lambda one: replace(one, template_values=values) if isinstance(one, ChatPrompt) else one
    )
    return changed, tuple(unread)


def with_described_results(request: GenerationRequest) -> GenerationRequest:
    """With a sentence in the place of each image of a tool's result."""
    return request.with_prompts(_described_in)


def _described_in(prompt: SinglePrompt) -> SinglePrompt:
    if not isinstance(prompt, ChatPrompt) or not any(one.result_images for one in prompt.messages):
        return prompt
    messages, images, kept = list[Message](), prompt.images, list[Image]()
    at = 0
    for message in prompt.messages:
        shown, own = message.result_images, message.parts.count(None)
        kept += images[at + shown : at + own]
        at += own
        messages.append(_described(message) if shown else message)
    return replace(prompt, messages=tuple(messages), images=tuple(kept))


def _described(message: Message) -> Message:
    left = message.result_images
    parts = list[str | None]()
    for part in message.parts:
        if part is None and left:
            part, left = UNSEEN, left - 1
        parts.append(part)
    text = "\n".join(filter(None, parts))
    return replace(
        message, content=text, parts=tuple(parts) if None in parts else (), result_images=0
    )
