"""Usage as OpenAI writes it."""

from __future__ import annotations

from proxy.domain.output import Usage


def usage_body(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
