"""Output events -> text_completion objects."""

from __future__ import annotations

from typing import Any

from proxy.api.openai.answer_fields import StreamUsage, response_head, usage_body
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.generation_body import FIELD_NAMES
from proxy.api.openai.log_prob_renderer import CompletionLogProbs
from proxy.domain.completion import Answer, Completion
from proxy.domain.events import Finished, OutputEvent, TextDelta
from proxy.domain.request import GenerationRequest


class CompletionRenderer:
    """Implements exchange.Renderer. A chunk has the same shape as the whole answer."""

    def __init__(
        self,
        body: CompletionBody,
        request: GenerationRequest,
        *,
        fingerprint: str | None = None,
    ) -> None:
        self._body = body
        self._log_probs: CompletionLogProbs | None = None
        if body.logprobs is not None:
            self._log_probs = CompletionLogProbs(by_id=bool(body.return_tokens_as_token_ids))
        self._returns_ids = bool(body.return_token_ids)
        self._usage = StreamUsage(body, request.choices * len(request.prompts))
        self._head = response_head(body, request, "text_completion", fingerprint)
        self._chunk_head = {**self._head, **self._usage.head}

    def field_names(self) -> dict[str, str]:
        # In completions `logprobs` is also the number of alternatives.
        names = {"top_log_probs": "logprobs", "num_top_log_probs": "logprobs"}
        return {**FIELD_NAMES, **names, "priority": self._body.priority_field}

    def chunks(self, event: OutputEvent) -> list[dict[str, Any]]:
        match event:
            case TextDelta():
                choice = self._with_tokens(_choice(event.choice, event.text), event)
                return [self._usage.chunk(self._chunk_head, event, choice)]
            case Finished():
                end = self._usage.chunk(
                    self._chunk_head, event, _choice(event.choice, "", event.reason.value)
                )
                return [end, *self._usage.last_chunks(self._head, event)]
            case _:
                raise TypeError(f"a text completion cannot have the event {event!r}")

    def kept(self, event: OutputEvent) -> OutputEvent:
        return event if self._log_probs is None else self._log_probs.kept(event)

    def full(self, completion: Completion) -> dict[str, Any]:
        choices = [self._whole(index, answer) for index, answer in enumerate(completion.choices)]
        return {**self._head, "choices": choices, "usage": usage_body(completion.usage)}

    def _whole(self, index: int, answer: Answer) -> dict[str, Any]:
        choice = _choice(index, answer.text, answer.reason.value)
        choice["logprobs"] = self._log_probs and self._log_probs.of_choice(index)
        if self._returns_ids:
            choice["token_ids"] = list(answer.token_ids)
        return choice

    def _with_tokens(self, choice: dict[str, Any], part: TextDelta) -> dict[str, Any]:
        if self._log_probs is not None and part.log_probs:
            choice["logprobs"] = self._log_probs.rendered(part.log_probs)
        if self._returns_ids:
            choice["token_ids"] = list(part.token_ids)
        return choice


def _choice(index: int, text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
