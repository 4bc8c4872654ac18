"""A caller's request, independent of the protocol. Made by the adapters in api/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Literal

from proxy.domain.constraint import Constraint
from proxy.domain.delta_log import DeltaLog
from proxy.domain.image import Image
from proxy.domain.tools import Tool, ToolCall, ToolChoice, ToolMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat. `content` is the joined text of its parts, None where there is none.

    The assistant's may have `tool_calls` and `reasoning`; `tool_call_id` says which of the calls a
    message of role tool answers. parts: of a message with images, its texts, and None in the place
    of each image. result_images: how many of its images, the first ones, are of tools' results.
    """

    role: str
    content: str | None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None
    parts: tuple[str | None, ...] = ()
    result_images: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes long chats cheap to pickle: the default takes a third of the time of rendering."""
        return _message, tuple([getattr(self, name) for name in _FIELDS_OF_MESSAGE])


_FIELDS_OF_MESSAGE = tuple(one.name for one in fields(Message))


def _message(*values: Any) -> Message:
    return Message(**dict(zip(_FIELDS_OF_MESSAGE, values, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """Rendered with the model's chat template, which writes its own special tokens.

    continues_last: the answer continues the last message. template_values: variables of the
    template besides the messages. callers_values: the same, under names that the caller chose.
    template: the caller's own, in place of the model's. images: of all messages, in their order.
    """

    messages: tuple[Message, ...]
    images: tuple[Image, ...] = ()
    adds_generation_prompt: bool = True
    continues_last: bool = False
    template_values: Mapping[str, object] = field(default_factory=dict)
    callers_values: Mapping[str, object] = field(default_factory=dict)
    template: str | None = None

    def place_of_image(self, number: int = 0) -> str:
        """The path of one of its images, for errors."""
        if self.images[number].place:
            return self.images[number].place
        places = [
            f"messages[{at}].content[{index}]"
            for at, message in enumerate(self.messages)
            for index, part in enumerate(message.parts)
            if part is None
        ]
        return places[number]

    @property
    def answer_prefix(self) -> str:
        """The first words of the answer, which the prompt ends with; mostly none."""
        return (self.messages[-1].content or "") if self.continues_last else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPrompt:
    """Tokenized as it is, with the tokenizer's own BOS. suffix: what follows the answer. pair: the
    text that is scored with it.
    """

    text: str
    suffix: str | None = None
    pair: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrompt:
    """Token ids, passed on as they are."""

    ids: tuple[int, ...]


SinglePrompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBatch:
    """Several prompts of one request, each answered by choices of its own."""

    prompts: tuple[SinglePrompt, ...]


Prompt = SinglePrompt | PromptBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLimit:
    """A longer prompt loses its beginning, or its end. tokens: None for as many as fit."""

    tokens: int | None
    keeps_start: bool = False


Datatype = Literal["BYTES", "INT32", "UINT64", "FP32", "BOOL"]


def _sent_as(datatype: Datatype) -> Any:
    """A field that is one tensor, by its own name in most dialects."""
    return field(default=None, metadata={"datatype": datatype})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The table of sampling: tensors, capabilities and what other people's models can take follow
    from it. None: not given by the caller; the default is the registry's, then the engine's.

    logit_bias: (token id, what is added to its logit). top_log_probs: None for no
    log-probabilities, else how many alternatives besides each token's own.
    """

    temperature: float | None = _sent_as("FP32")
    top_k: int | None = _sent_as("INT32")
    top_p: float | None = _sent_as("FP32")
    min_p: float | None = _sent_as("FP32")
    seed: int | None = _sent_as("UINT64")
    repetition_penalty: float | None = _sent_as("FP32")
    presence_penalty: float | None = _sent_as("FP32")
    frequency_penalty: float | None = _sent_as("FP32")
    logit_bias: tuple[tuple[int, float], ...] | None = None
    allowed_token_ids: tuple[int, ...] | None = _sent_as("INT32")
    bad_words: tuple[str, ...] | None = _sent_as("BYTES")
    min_tokens: int | None = _sent_as("INT32")
    ignore_eos: bool | None = _sent_as("BOOL")
    stop_token_ids: tuple[int, ...] | None = _sent_as("INT32")
    top_log_probs: int | None = None

    @property
    def given(self) -> frozenset[str]:
        """Names of the fields that have a value."""
        return frozenset(one.name for one in fields(self) if getattr(self, one.name) is not None)

    def with_defaults(self, defaults: Sampling) -> Sampling:
        """The caller's values where there are any."""
        if defaults == NO_DEFAULTS:
            return self
        missing = {
            name: default
            for name in self.__slots__
            if getattr(self, name) is None and (default := getattr(defaults, name)) is not None
        }
        return replace(self, **missing) if missing else self

    def without_effect(self, defaults: Sampling) -> tuple[str, ...]:
        """The given fields that change nothing, because another one, or its default, leaves only
        the likeliest token.
        """
        used = {
            name: getattr(self if getattr(self, name) is not None else defaults, name)
            for name in TRUNCATION
        }
        if not any(used[name] == greedy for name, (greedy, _) in TRUNCATION.items()):
            return ()
        return tuple(
            name
            for name, no_effect in TRUNCATION.items()
            if (given := getattr(self, name)) is not None and given not in no_effect
        )


# Field -> the value that leaves only the likeliest token, and the one that changes nothing.
TRUNCATION: dict[str, tuple[float, float | None]] = {
    "temperature": (0, None),
    "top_k": (1, 0),
    "top_p": (0, 1),
    "min_p": (1, 0),
}
NO_DEFAULTS = Sampling()
# The fields that are one tensor, with its datatype.
SAMPLING: Mapping[str, Datatype] = {
    one.name: one.metadata["datatype"] for one in fields(Sampling) if one.metadata
}


class Delivery(Enum):
    """LIVE: events reach the caller as they come, so that none can be taken back. HELD: the caller
    gets the whole answer at its end.
    """

    LIVE = "live"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request for one model. `id` is ours, unique, and is the Triton request id too.

    lowers_max_tokens: `max_tokens` over a limit is lowered to it, not refused.
    choices: answers to each prompt, the best of `best_of` where that is more. includes_stop: the
    answer has the stop string or token that ended it. reports_usage: with each piece of text, too.
    adds_special_tokens: the tokenizer's own around the prompt; None for what is usual.
    logs_token_ids: log-probabilities have the ids of their tokens.
    calls_in_parallel: an answer may have more than one call. constraint: what the caller wants
    the text to conform to. thinking_budget: tokens of reasoning, at most. offers_server_tools: None
    to offer those that the model has. priority: a higher one goes first, and 0 is the default.
    has_assigned_priority: the caller gave none, and its ceiling is below 0. caller: the name that
    limits for each caller count by; empty where it is not known.
    tenant: the one that a caller without a key names, for logs, metrics and the fair queue alone.
    fallback_from: the model that the caller named, where `model` answers in its place.
    dropped_tools: types of offered tools that no model here can call, so it does not see them.
    token_cap: new tokens at most where max_tokens is None, whatever the default; where both are
    given, max_tokens is lowered to what the context has left. prompt_cap: a
    prompt of more tokens is refused. queue_patience_s: how long it waits for a row at most, 0 not
    at all; None for as long as the operator allows.
    """

    id: str
    model: str
    prompt: Prompt
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    lowers_max_tokens: bool = False
    stop: tuple[str, ...] = ()
    includes_stop: bool = False
    choices: int = 1
    best_of: int | None = None
    echoes_prompt: bool = False
    adds_special_tokens: bool | None = None
    prompt_limit: PromptLimit | None = None
    logs_token_ids: bool = False
    returns_token_ids: bool = False
    reports_usage: bool = False
    skips_special_tokens: bool = True
    tools: tuple[Tool, ...] = ()
    dropped_tools: tuple[str, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    calls_in_parallel: bool = True
    constraint: Constraint | None = None
    thinking_budget: int | None = None
    offers_server_tools: bool | None = None
    reports_server_calls: bool = False
    priority: int | None = None
    has_assigned_priority: bool = False
    cache_salt: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    caller: str = ""
    tenant: str | None = None
    fallback_from: str | None = None
    token_cap: int | None = None
    prompt_cap: int | None = None
    embeds: int | None = None  # instead of generating: so many dimensions, 0 for the model's own
    queue_patience_s: float | None = None
    delta_log: DeltaLog | None = None  # of an answer that another proxy may have to continue

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that the caller lets the model call."""
        choice = self.tool_choice
        if choice.mode is ToolMode.NONE or not self.tools:
            return ()
        allowed = choice.allowed
        return tuple(tool for tool in self.tools if allowed is None or tool.name in allowed)

    @property
    def prompts(self) -> tuple[SinglePrompt, ...]:
        return self.prompt.prompts if isinstance(self.prompt, PromptBatch) else (self.prompt,)

    def with_prompts(self, change: Callable[[SinglePrompt], SinglePrompt]) -> GenerationRequest:
        """Returns it with each prompt changed, or itself where none is."""
        changed = tuple(map(change, self.prompts))
        if all(new is old for new, old in zip(changed, self.prompts, strict=True)):
            return self
        is_batch = isinstance(self.prompt, PromptBatch)
        return replace(self, prompt=PromptBatch(prompts=changed) if is_batch else changed[0])

    @property
    def inputs(self) -> tuple[TextPrompt | TokenPrompt, ...]:
        """The texts or ids to embed or score; empty for a generation."""
        if self.embeds is None:
            return ()
        return tuple(each for each in self.prompts if not isinstance(each, ChatPrompt))

    @property
    def echoes_tokens(self) -> bool:
        """Whether the engine sends the prompt's tokens, because its text is not enough."""
        knows_text = isinstance(self.prompt, TextPrompt) and self.prompt_limit is None
        wants_text = self.sampling.top_log_probs is None and self.max_tokens != 0
        return self.echoes_prompt and not (knows_text and wants_text)

    @property
    def candidates(self) -> int:
        """Answers that are generated to each prompt."""
        return max(self.choices, self.best_of or 1)

    @property
    def generations(self) -> int:
        """Answers that are generated to all prompts together."""
        prompts = len(self.prompt.prompts) if isinstance(self.prompt, PromptBatch) else 1
        return prompts * max(self.choices, self.best_of or 1)

    def part(self, index: int) -> GenerationRequest:
        """The request for one of its generations; those of the first prompt come first.

        A given seed becomes seed, seed + 1, … so that candidates differ and can be reproduced.
        """
        if self.generations == 1:
            is_batch = isinstance(self.prompt, PromptBatch)
            return replace(self, prompt=self.prompts[0]) if is_batch else self
        at, number = divmod(index, self.candidates)
        return replace(
            self,
            id=f"{self.id}-{index}",
            prompt=self.prompts[at],
            choices=1,
            best_of=None,
            sampling=self._sampling_of(number),
        )

    def _sampling_of(self, candidate: int) -> Sampling:
        """Choosing the best of them takes log-probabilities."""
        sampling = self.sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + candidate)
        if self.candidates > self.choices and sampling.top_log_probs is None:
            sampling = replace(sampling, top_log_probs=0)
        return sampling
