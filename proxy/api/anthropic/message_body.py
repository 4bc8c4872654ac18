"""The bodies of POST /v1/messages and /v1/messages/count_tokens.

Every field is honored, or a hint without effect, or refused by name: docs/api.md has the list. What
Claude Code 2.1 and Anthropic's SDKs send by themselves is accepted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from secrets import token_hex
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from proxy.api.anthropic.content_blocks import (
    AnyMessage,
    Effort,
    Hint,
    MessageBody,
    SystemMessage,
    Words,
)
from proxy.api.anthropic.conversation import conversation, tool_changes, words_of
from proxy.api.anthropic.tool_bodies import AnyTool, CustomTool, ToolName, offered
from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import (
    INT32_MAX,
    MOST_STOPS,
    AtMostMessages,
    AtMostTools,
    Label,
    ListOf,
    Only,
    Probability,
    RequestBody,
    StopString,
    TokenLimit,
    check_own_names,
    check_some_usable,
    dropped_types,
)
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest, Sampling
from proxy.domain.tools import ToolChoice, ToolMode
from proxy.language.prompting.chat_template import EFFORT, NONE, SWITCHES, read_by
from proxy.language.structured.constraint_request import ConstraintRequest, Form
from proxy.language.syntax.parsers import syntax_of
from proxy.models.registry import ServedModel


class ChoiceBody(RequestBody):
    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _tool_has_a_name(self) -> ChoiceBody:
        if (self.type == "tool") is (self.name is None):
            raise FieldError(
                "tool_choice.name",
                "'tool_choice.name' is for 'tool_choice.type' \"tool\" alone, which needs it "
                f"(given: {self.type!r})",
            )
        return self

    def to_domain(self) -> ToolChoice:
        allowed = None if self.name is None else (self.name,)
        return ToolChoice(mode=MODES[self.type], allowed=allowed, is_named=allowed is not None)


MODES = {
    "auto": ToolMode.AUTO,
    "any": ToolMode.REQUIRED,
    "tool": ToolMode.REQUIRED,
    "none": ToolMode.NONE,
}
Display = Literal["summarized", "updates", "omitted"]  # the first two show all of it


class ThinkingBody(RequestBody):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    display: Display | None = None

    @model_validator(mode="after")
    def _budget_of_enabled(self) -> ThinkingBody:
        if (self.type == "enabled") is (self.budget_tokens is None):
            raise FieldError(
                "thinking.budget_tokens",
                "'thinking.budget_tokens' is required with 'thinking.type' \"enabled\", and not "
                f"allowed with others (given: {self.type!r})",
            )
        return self


class SchemaFormat(RequestBody):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(RequestBody):
    effort: Effort | None = None
    format: SchemaFormat | None = None


class KeptTurns(RequestBody):
    type: Literal["thinking_turns"]
    value: Annotated[int, Field(ge=1, le=INT32_MAX)]


class AllTurns(RequestBody):
    type: Literal["all"]


def _kept(given: Any) -> str:
    if not isinstance(given, dict):
        return "<word>"
    return "<all>" if given.get("type") == "all" else "<turns>"


class ClearThinking(RequestBody):
    type: Annotated[
        Literal["clear_thinking_20251015", "clear_tool_uses_20250919", "compact_20260112"],
        Only("clear_thinking_20251015"),
    ]
    keep: (
        Annotated[
            Annotated[Literal["all"], Tag("<word>")]
            | Annotated[AllTurns, Tag("<all>")]
            | Annotated[KeptTurns, Tag("<turns>")],
            Discriminator(_kept),
        ]
        | None
    ) = None

    @property
    def kept_thoughts(self) -> int | None:
        """None: all. One, where nothing is said."""
        if isinstance(self.keep, KeptTurns):
            return self.keep.value
        return 1 if self.keep is None else None


class ContextManagement(RequestBody):
    edits: ListOf[ClearThinking] | None = None


class CountTokensBody(RequestBody):
    """What both routes take."""

    model: str
    messages: Annotated[ListOf[MessageBody], Field(min_length=1), AtMostMessages]
    system: Words | None = None
    tools: Annotated[ListOf[AnyTool] | None, AtMostTools] = None
    tool_choice: ChoiceBody | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputConfig | None = None
    context_management: ContextManagement | None = None
    cache_control: Hint = None
    speed: Annotated[Literal["standard", "fast"], Only("standard")] | None = None

    @model_validator(mode="after")
    def _tools_have_their_own_names(self) -> CountTokensBody:
        check_own_names(
            (f"tools[{at}].name", tool.name)
            for at, tool in enumerate(self.tools or ())
            if isinstance(tool, CustomTool)
        )
        return self

    @cached_property
    def _offered(self) -> list[tuple[str, object]]:
        return list(offered(self.tools or (), tool_changes(self.messages)))

    @property
    def callable_tools(self) -> list[tuple[str, CustomTool]]:
        """Those that the model sees, each with its path."""
        return [(path, one) for path, one in self._offered if isinstance(one, CustomTool)]

    def check_choice(self, card: ModelCard) -> None:
        """Raises InvalidRequest: `tool_choice` needs tools, or names one that there is not; or no
        tool can be called.
        """
        choice = self.tool_choice
        own = {tool.name for _, tool in self.callable_tools}
        known = own | {tool.name for tool in card.server_tools.tools}
        check_some_usable(dropped_types(one for _, one in self._offered), bool(known))
        wrong = None
        if choice is not None and choice.name is not None and choice.name not in known:
            wrong = f"'tool_choice.name' is {choice.name!r}, which is not one of 'tools'"
        elif choice is not None and choice.type == "any" and not known:
            wrong = "'tool_choice' \"any\" is only allowed when 'tools' are given"
        if wrong is not None:
            raise InvalidRequest(wrong, param="tool_choice")

    @property
    def asked_format(self) -> ConstraintRequest | None:
        found = None if self.output_config is None else self.output_config.format
        if found is None:
            return None
        path = "output_config.format.schema"
        return ConstraintRequest(field=path, form=Form.SCHEMA, value=found.schema_, is_strict=True)

    def to_domain(self, served: ServedModel, caller: str) -> GenerationRequest:
        """Raises InvalidRequest: see conversation."""
        edits = (self.context_management and self.context_management.edits) or ()
        kept = [edit.kept_thoughts for edit in edits]
        messages, images = conversation(
            words_of(self.system or ""),
            self.messages,
            kept_thoughts=min((one for one in kept if one is not None), default=None),
        )
        values, budget = self._thinking(served.card)
        continues = messages[-1].role == "assistant"
        choice = self.tool_choice
        return GenerationRequest(
            caller=caller,
            id=f"msg_{token_hex(16)}",
            model=served.name,
            fallback_from=served.fallback_from,
            prompt=ChatPrompt(
                messages=messages,
                images=images,
                adds_generation_prompt=not continues,
                continues_last=continues,
                template_values=values,
            ),
            tools=tuple(tool.to_domain() for _, tool in self.callable_tools),
            dropped_tools=dropped_types(one for _, one in self._offered),
            tool_choice=ToolChoice() if choice is None else choice.to_domain(),
            calls_in_parallel=choice is None or not choice.disable_parallel_tool_use,
            thinking_budget=budget,
        )

    def _thinking(self, card: ModelCard) -> tuple[dict[str, object], int | None]:
        """Values of the chat template, and the budget of the reasoning.

        `disabled` must not fail: Claude Code sends it for titles.
        """
        thinks, thinking = syntax_of(card).reasoning is not None, self.thinking
        values: dict[str, object] = {}
        if thinking is not None and thinking.type == "disabled":
            return {EFFORT: NONE}, None
        if (effort := self._effort) is not None:
            values[EFFORT] = effort
        if thinking is None:
            return values, None
        values |= {name: True for name in SWITCHES if name in read_by(card.facts)}
        return values, thinking.budget_tokens if thinks else None

    @property
    def _effort(self) -> str | None:
        """The last one: a message may change it."""
        config = self.output_config
        return _last_effort(self.messages) or (None if config is None else config.effort)


def _last_effort(messages: list[AnyMessage]) -> str | None:
    for message in reversed(messages):
        if isinstance(message, SystemMessage) and message.output_config is not None:
            return message.output_config.effort
    return None


class MessageMetadata(RequestBody):
    user_id: Label | None = None


class MessagesBody(CountTokensBody):
    """`service_tier`: both values get the usual tier. `diagnostics` asks why a prefix was not
    cached, which engines do not report.
    """

    max_tokens: TokenLimit
    stop_sequences: Annotated[ListOf[StopString] | None, MOST_STOPS] = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    metadata: MessageMetadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    diagnostics: Hint = None
    store: Annotated[bool, Only(False)] | None = None

    def to_domain(self, served: ServedModel, caller: str) -> GenerationRequest:
        """Raises InvalidRequest: see conversation."""
        sampling = Sampling(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        return replace(
            super().to_domain(served, caller),
            max_tokens=self.max_tokens,
            lowers_max_tokens=True,
            stop=tuple(self.stop_sequences or ()),
            sampling=sampling,
            user=None if self.metadata is None else self.metadata.user_id,
        )
