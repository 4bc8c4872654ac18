"""POST /v1/chat/completions: a checked body -> GenerationRequest. Called by `request_builder`."""

from __future__ import annotations

from secrets import token_hex

from triton_openai.proxy.api.openai.requests.chat_body import ChatCompletionBody
from triton_openai.proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    SinglePrompt,
    TextPrompt,
    TokenPrompt,
)

# The default: the template need not support it.
DEFAULT_VERBOSITY = ("verbosity", "medium")


def to_domain(body: ChatCompletionBody, caller: str) -> GenerationRequest:
    return GenerationRequest(
        caller=caller,
        id=f"chatcmpl-{token_hex(16)}",
        prompt=_prompt(body),
        max_tokens=body.token_limit,
        tools=body.domain_tools,
        tool_choice=body.domain_choice,
        thinking_budget=body.thinking_token_budget,
        offers_server_tools=body.server_tools,
        reports_server_calls=bool(body.server_tool_events),
        calls_in_parallel=body.parallel_tool_calls is not False,
        **body.shared(body.top_log_probs),
    )


def _prompt(body: ChatCompletionBody) -> SinglePrompt:
    if body.prompt_token_ids is not None:
        return TokenPrompt(ids=tuple(body.prompt_token_ids))
    if body.takes_raw_prompt:
        return TextPrompt(text=body.messages[0].to_domain().content or "")
    return _chat_prompt(body)


def _chat_prompt(body: ChatCompletionBody) -> ChatPrompt:
    values = {name: getattr(body, name) for name in ("reasoning_effort", "verbosity")}
    continues = bool(body.continue_final_message)
    return ChatPrompt(
        messages=tuple(message.to_domain() for message in body.messages),
        adds_generation_prompt=not continues and body.add_generation_prompt is not False,
        continues_last=continues,
        template_values={
            name: value
            for name, value in values.items()
            if value is not None and (name, value) != DEFAULT_VERBOSITY
        }
        | ({} if body.documents is None else {"documents": body.documents}),
        callers_values=body.chat_template_kwargs or {},
        template=body.chat_template,
    )
