"""Output events -> text_completion objects."""

from __future__ import annotations

from typing import Any

from proxy.api.openai.answer_fields import AnswerRenderer
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.generation_body import FIELD_NAMES
from proxy.api.openai.log_prob_renderer import CompletionLogProbs
from proxy.domain.completion import Answer
from proxy.domain.events import Finished, OutputEvent, TextDelta
from proxy.domain.request import GenerationRequest


class CompletionRenderer(AnswerRenderer):
    """Implements exchange.Renderer. A chunk has the same shape as the whole answer."""

    def __init__(
        self,
        body: CompletionBody,
        request: GenerationRequest,
        *,
        fingerprint: str | None = None,
    ) -> None:
        by_id = bool(body.return_tokens_as_token_ids)
        super().__init__(
            body,
            request,
            kind="text_completion",
            fingerprint=fingerprint,
            log_probs=None if body.logprobs is None else CompletionLogProbs(by_id=by_id),
        )
        self._body = body
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

    def _whole(self, index: int, answer: Answer) -> dict[str, Any]:
        return _choice(index, answer.text, answer.reason.value)


def _choice(index: int, text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
