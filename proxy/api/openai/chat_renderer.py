"""Output events -> chat.completion and chat.completion.chunk objects."""

from __future__ import annotations

from typing import Any

from typing_extensions import assert_never

from proxy.api.openai.answer_fields import AnswerRenderer
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.generation_body import FIELD_NAMES
from proxy.api.openai.log_prob_renderer import ChatLogProbs
from proxy.domain.completion import Answer
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
from proxy.domain.request import GenerationRequest
from proxy.domain.tools import ToolCall


class ChatRenderer(AnswerRenderer):
    """Implements exchange.Renderer. `reasoning_fields`: the fields that carry the reasoning."""

    def __init__(
        self,
        body: ChatCompletionBody,
        request: GenerationRequest,
        *,
        fingerprint: str | None = None,
        reasoning_fields: tuple[str, ...] = (),
    ) -> None:
        by_id = bool(body.return_tokens_as_token_ids)
        super().__init__(
            body,
            request,
            kind="chat.completion",
            fingerprint=fingerprint,
            log_probs=ChatLogProbs(by_id=by_id) if body.logprobs else None,
        )
        self._body = body
        self._reasoning_fields = reasoning_fields
        self._has_begun = False
        self._chunk_head = {
            **self._head,
            "object": "chat.completion.chunk",
            **self._usage.head,
        }

    def field_names(self) -> dict[str, str]:
        is_renamed = self._body.max_tokens is None
        return {
            **FIELD_NAMES,
            "prompt": "messages",
            "max_tokens": "max_completion_tokens" if is_renamed else "max_tokens",
            "priority": self._body.priority_field,
        }

    def chunks(self, event: OutputEvent) -> list[dict[str, Any]]:
        """The event's chunks. Before the first event, a chunk with the role for each choice."""
        chunks = [] if self._has_begun else self._openings(event)
        if isinstance(event, Finished):
            chunks.append(self._chunk(event, _choice(event.choice, {}, event.reason.value)))
            return chunks + self._usage.last_chunks(self._chunk_head, event)
        choice = _choice(event.choice, self._delta(event))
        chunks.append(self._chunk(event, self._with_tokens(choice, event)))
        return chunks

    def _whole(self, index: int, answer: Answer) -> dict[str, Any]:
        return {
            "index": index,
            "message": self._message(answer),
            "logprobs": None,
            "finish_reason": answer.reason.value,
        }

    def _openings(self, first: OutputEvent) -> list[dict[str, Any]]:
        """A first chunk for each choice, in order.

        SDKs that accumulate a stream fail if its first chunk is not of choice 0. OpenAI's SDK for
        Java also ends the stream when all choices that it has seen have ended.
        """
        self._has_begun = True
        openings = []
        for index in range(self._choices):
            is_silent = index == first.choice and not isinstance(first, (TextDelta, Finished))
            content = None if is_silent else ""
            role = {"role": "assistant", "content": content, "refusal": None}
            opening = self._usage.opening(self._chunk_head, first, _choice(index, role))
            openings.append(opening)
        return openings

    def _delta(self, event: AnyDelta) -> dict[str, Any]:
        match event:
            case TextDelta():
                return {"content": event.text} if event.text else {}
            case ReasoningDelta():
                return dict.fromkeys(self._reasoning_fields, event.text)
            case ToolCallStarted():
                call = ToolCall(id=event.id, name=event.name, arguments="")
                return {"tool_calls": [{"index": event.index, **_call(call)}]}
            case ToolCallArguments():
                arguments = {"index": event.index, "function": {"arguments": event.fragment}}
                return {"tool_calls": [arguments]}
            case ServerToolCalled():
                return {"server_tool_calls": [_server_call(event)]}
            case _:
                assert_never(event)

    def _message(self, answer: Answer) -> dict[str, Any]:
        has_more = answer.calls or answer.reasoning
        message: dict[str, Any] = {
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
        return message

    def _chunk(self, event: OutputEvent, choice: dict[str, Any]) -> dict[str, Any]:
        return self._usage.chunk(self._chunk_head, event, choice)


def _choice(index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _server_call(call: ServerToolCalled) -> dict[str, Any]:
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
