"""POST /v1/completions."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from triton_openai.proxy.api.openai.answers.head import head
from triton_openai.proxy.api.openai.answers.log_probs import KeptLogProbs, LogProbs
from triton_openai.proxy.api.openai.answers.usage import StreamUsage, usage_body
from triton_openai.proxy.api.openai.requests.bodies import CompletionBody
from triton_openai.proxy.api.openai.requests.field_names import COMPLETION_NAMES
from triton_openai.proxy.domain.completion import Answer, Completion
from triton_openai.proxy.domain.events import Finished, OutputEvent, TextDelta
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import (
    GenerationRequest,
    Prompt,
    PromptBatch,
    TextPrompt,
    TokenPrompt,
)
from triton_openai.proxy.domain.request_limits import smaller

USUAL_TOKENS = 16  # as OpenAI's specification has it


def to_domain(body: CompletionBody, card: ModelCard, caller: str) -> GenerationRequest:
    """`card`: of the model that it names."""
    return GenerationRequest(
        caller=caller,
        id=f"cmpl-{token_hex(16)}",
        prompt=_prompt(body.prompt, body.suffix),
        max_tokens=_token_limit(body, card),
        best_of=body.best_of,
        echoes_prompt=bool(body.echo),
        **body.shared(body.logprobs),
    )


def _token_limit(body: CompletionBody, card: ModelCard) -> int | None:
    """None for a default of the model's own, which its tokenizer knows and cuts to the context."""
    if body.max_tokens is not None or card.facts.default_max_tokens is not None:
        return body.max_tokens
    return smaller(max(USUAL_TOKENS, body.min_tokens or 0), card.limits.max_tokens)


def _prompt(given: str | list[str] | list[int] | list[list[int]], suffix: str | None) -> Prompt:
    if isinstance(given, str) or isinstance(given[0], int):
        return _one_prompt(given, suffix)
    return PromptBatch(prompts=tuple(_one_prompt(one, suffix) for one in given))


def _one_prompt(given: Any, suffix: str | None) -> TextPrompt | TokenPrompt:
    if isinstance(given, str):
        return TextPrompt(text=given, suffix=suffix)
    return TokenPrompt(ids=tuple(given))


class CompletionRenderer:
    """Events as text_completion objects; a chunk has the same shape as the whole."""

    field_names = COMPLETION_NAMES

    def __init__(
        self,
        body: CompletionBody,
        request: GenerationRequest,
        *,
        fingerprint: str | None = None,
    ) -> None:
        self._logs = body.logprobs is not None
        self._log_probs = LogProbs(by_id=bool(body.return_tokens_as_token_ids))
        self._kept = KeptLogProbs(self._log_probs.of_completion)
        self._tells_ids = bool(body.return_token_ids)
        self._usage = StreamUsage(body, request.choices * len(request.prompts))
        self._head = head(body, request, "text_completion", fingerprint)
        self._chunk_head = {**self._head, **self._usage.head}

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
                raise TypeError(f"nobody looks for {event!r} in a text completion")

    def kept(self, event: OutputEvent) -> OutputEvent:
        return self._kept.kept(event) if self._logs else event

    def full(self, completion: Completion) -> dict[str, Any]:
        choices = [self._whole(index, answer) for index, answer in enumerate(completion.choices)]
        return {**self._head, "choices": choices, "usage": usage_body(completion.usage)}

    def _whole(self, index: int, answer: Answer) -> dict[str, Any]:
        choice = _choice(index, answer.text, answer.reason.value)
        choice["logprobs"] = self._kept.of_choice(index)
        if self._tells_ids:
            choice["token_ids"] = list(answer.token_ids)
        return choice

    def _with_tokens(self, choice: dict[str, Any], part: TextDelta) -> dict[str, Any]:
        if self._logs and part.log_probs:
            choice["logprobs"] = self._log_probs.of_completion(part.log_probs)
        if self._tells_ids:
            choice["token_ids"] = list(part.token_ids)
        return choice


def _choice(index: int, text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
