"""Output events -> OpenAI's answers and chunks: chat.completion and text_completion."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256

from typing_extensions import assert_never

from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.field_types import Json
from proxy.api.openai.generation_body import FIELD_NAMES, GenerationBody
from proxy.api.openai.log_prob_renderer import ChatLogProbs, CompletionLogProbs, LogProbRenderer
from proxy.domain.completion import Answer, Completion
from proxy.domain.events import (
    AnyDelta,
    Finished,
    OutputEvent,
    ReasoningDelta,
    ServerToolCalled,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.model import ModelCard
from proxy.domain.output import Usage
from proxy.domain.request import GenerationRequest
from proxy.domain.tools import ToolCall

# Audio and predictions are not supported, so these are 0. Clients with strict types (MacPaw's for
# Swift, older ones for PHP) lose the whole block, or fail, if one of these fields is missing.
NO_AUDIO = {"audio_tokens": 0}
NOT_PREDICTED = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}


def usage_body(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, **NO_AUDIO},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            **NO_AUDIO,
            **NOT_PREDICTED,
        },
    }


@lru_cache(maxsize=64)
def _fingerprint(card: ModelCard) -> str:
    """A text that changes when the model is rebuilt: equal seeds may then give other answers."""
    built = f"{card.name} {card.facts.created} {card.facts.engine_model}"
    return f"fp_{sha256(built.encode()).hexdigest()[:10]}"


class AnswerRenderer(ABC):
    """The part of answer.Renderer that is the same for chats and completions.

    Every object of one response begins with the same fields. Every chunk has `usage`, null or so
    far, if the request wants usage at the end or all the time.
    """

    def __init__(
        self,
        body: GenerationBody,
        request: GenerationRequest,
        card: ModelCard,
        *,
        kind: str,
        chunk_kind: str,
        log_probs: LogProbRenderer | None,
    ) -> None:
        """kind: the `object` of a whole answer. log_probs: None if the request wants none."""
        self._body = body
        self._log_probs = log_probs
        self._returns_ids = bool(body.return_token_ids)
        self._has_tokens = log_probs is not None or self._returns_ids
        self._choices = self._unfinished = request.choices * len(request.prompts)
        self._ends_with_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._has_continuous_usage = request.reports_usage
        self._used: dict[int, Usage] = {}  # by choice
        prefix = request.id.partition("-")[0]
        self._head: Json = {
            "id": request.id if body.request_id is None else f"{prefix}-{body.request_id}",
            "object": kind,
            "created": int(time.time()),
            "model": request.model,
            "system_fingerprint": _fingerprint(card),
        }
        if body.service_tier is not None:
            self._head["service_tier"] = body.service_tier
        self._chunk_head = {**self._head, "object": chunk_kind}
        if self._ends_with_usage or self._has_continuous_usage:
            self._chunk_head["usage"] = None
        self._usage_head = self._chunk_head  # of the chunk after the last choice

    @abstractmethod
    def _whole(self, index: int, answer: Answer) -> Json:
        """A choice of a whole answer, without log-probabilities and ids."""

    def kept(self, event: OutputEvent) -> OutputEvent:
        return event if self._log_probs is None else self._log_probs.kept(event)

    def full(self, completion: Completion) -> Json:
        choices = []
        for index, answer in enumerate(completion.choices):
            choice = self._whole(index, answer)
            choice["logprobs"] = self._log_probs and self._log_probs.of_choice(index)
            if self._returns_ids:
                choice["token_ids"] = list(answer.token_ids)
            choices.append(choice)
        return {**self._head, "choices": choices, "usage": usage_body(completion.usage)}

    def _chunk(self, choice: Json, usage: Usage | None) -> Json:
        """usage: of the choice so far."""
        chunk = {**self._chunk_head, "choices": [choice]}
        if self._has_continuous_usage:
            if usage is not None:
                self._used[choice["index"]] = usage
            chunk["usage"] = self._usage_so_far()
        return chunk

    def _add_tokens(self, choice: Json, event: AnyDelta) -> None:
        if self._log_probs is not None and event.log_probs:
            choice["logprobs"] = self._log_probs.rendered(event.log_probs)
        if self._returns_ids:
            choice["token_ids"] = list(event.token_ids)

    def _last_chunks(self, choice: Json, event: Finished) -> list[Json]:
        """The chunk that ends a choice; after the last one the usage, if the request wants it."""
        chunks = [self._chunk(choice, event.usage)]
        self._used[event.choice] = event.usage
        self._unfinished -= 1
        if not self._unfinished and self._ends_with_usage:
            chunks.append({**self._usage_head, "choices": [], "usage": self._usage_so_far()})
        return chunks

    def _usage_so_far(self) -> Json:
        return usage_body(sum(self._used.values(), start=Usage()))


class ChatRenderer(AnswerRenderer):
    """Implements answer.Renderer. `reasoning_fields`: the fields that carry the reasoning."""

    def __init__(
        self,
        body: ChatCompletionBody,
        request: GenerationRequest,
        card: ModelCard,
        reasoning_fields: tuple[str, ...] = (),
    ) -> None:
        by_id = bool(body.return_tokens_as_token_ids)
        super().__init__(
            body,
            request,
            card,
            kind="chat.completion",
            chunk_kind="chat.completion.chunk",
            log_probs=ChatLogProbs(by_id=by_id) if body.logprobs else None,
        )
        self._chat = body
        self._reasoning_fields = reasoning_fields
        self._has_begun = False
        self._custom_calls: set[tuple[int, int]] = set()  # choice and index

    def field_names(self) -> dict[str, str]:
        is_renamed = self._body.max_tokens is None
        return {
            **{f"tools[{at}]": path for at, (path, _) in enumerate(self._chat.offered)},
            **FIELD_NAMES,
            "prompt": "messages",
            "max_tokens": "max_completion_tokens" if is_renamed else "max_tokens",
            "priority": self._body.priority_field,
        }

    def chunks(self, event: OutputEvent) -> list[Json]:
        """The event's chunks. Before the first event, a chunk with the role for each choice."""
        chunks = [] if self._has_begun else self._openings(event)
        if isinstance(event, Finished):
            choice = _choice(event.choice, {}, event.reason.value)
            return chunks + self._last_chunks(choice, event)
        choice = _choice(event.choice, self._delta(event))
        if self._has_tokens:
            self._add_tokens(choice, event)
        chunks.append(self._chunk(choice, event.usage))
        return chunks

    def _whole(self, index: int, answer: Answer) -> Json:
        has_more = answer.calls or answer.reasoning
        message: Json = {
            "role": "assistant",
            "content": None if has_more and not answer.text else answer.text,
            "refusal": None,
        }
        if answer.reasoning:
            message |= dict.fromkeys(self._reasoning_fields, answer.reasoning)
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        if answer.server_calls:
            message["server_tool_calls"] = [_server_call(call) for call in answer.server_calls]
        return {
            "index": index,
            "message": message,
            "logprobs": None,
            "finish_reason": answer.reason.value,
        }

    def _openings(self, first: OutputEvent) -> list[Json]:
        """A first chunk for each choice, in order. Its usage counts only the prompt.

        SDKs that accumulate a stream fail if its first chunk is not of choice 0. OpenAI's SDK for
        Java also ends the stream when all choices that it has seen have ended.
        """
        self._has_begun = True
        if (usage := first.usage) is not None:
            self._used[first.choice] = replace(usage, completion_tokens=0, reasoning_tokens=0)
        openings = []
        for index in range(self._choices):
            is_silent = index == first.choice and not isinstance(first, (TextDelta, Finished))
            role = {"role": "assistant", "content": None if is_silent else "", "refusal": None}
            openings.append(self._chunk(_choice(index, role), None))
        return openings

    def _delta(self, event: AnyDelta) -> Json:
        match event:
            case TextDelta():
                return {"content": event.text} if event.text else {}
            case ReasoningDelta():
                return dict.fromkeys(self._reasoning_fields, event.text)
            case ToolCallStarted():
                if event.is_custom:
                    self._custom_calls.add((event.choice, event.index))
                call = ToolCall(
                    id=event.id, name=event.name, arguments="", is_custom=event.is_custom
                )
                return {"tool_calls": [{"index": event.index, **_call(call)}]}
            case ToolCallArguments():
                more: Json = {"function": {"arguments": event.fragment}}
                if (event.choice, event.index) in self._custom_calls:
                    more = {"custom": {"input": event.fragment}}
                return {"tool_calls": [{"index": event.index, **more}]}
            case ServerToolCalled():
                return {"server_tool_calls": [_server_call(event)]}
            case _:
                assert_never(event)


def _choice(index: int, delta: Json, finish_reason: str | None = None) -> Json:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _call(call: ToolCall) -> Json:
    if call.is_custom:
        custom = {"name": call.name, "input": call.arguments}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _server_call(call: ServerToolCalled) -> Json:
    """Whole answers have `index` too, because SDKs that accumulate a stream need it."""
    return {
        "index": call.index,
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": call.status.value,
        "result": call.result,
        "duration_ms": call.duration_ms,
    }


class CompletionRenderer(AnswerRenderer):
    """Implements answer.Renderer. A chunk has the same shape as the whole answer."""

    def __init__(self, body: CompletionBody, request: GenerationRequest, card: ModelCard) -> None:
        by_id = bool(body.return_tokens_as_token_ids)
        super().__init__(
            body,
            request,
            card,
            kind="text_completion",
            chunk_kind="text_completion",
            log_probs=None if body.logprobs is None else CompletionLogProbs(by_id=by_id),
        )
        self._usage_head = self._head

    def field_names(self) -> dict[str, str]:
        # In completions `logprobs` is also the number of alternatives.
        names = {"top_log_probs": "logprobs", "num_top_log_probs": "logprobs"}
        names["prompt_token_ids"] = "prompt"
        return {**FIELD_NAMES, **names, "priority": self._body.priority_field}

    def chunks(self, event: OutputEvent) -> list[Json]:
        match event:
            case TextDelta():
                choice = _text_choice(event.choice, event.text)
                if self._has_tokens:
                    self._add_tokens(choice, event)
                return [self._chunk(choice, event.usage)]
            case Finished():
                return self._last_chunks(_text_choice(event.choice, "", event.reason.value), event)
            case _:
                raise TypeError(f"a text completion cannot have the event {event!r}")

    def _whole(self, index: int, answer: Answer) -> Json:
        return _text_choice(index, answer.text, answer.reason.value)


def _text_choice(index: int, text: str, finish_reason: str | None = None) -> Json:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
