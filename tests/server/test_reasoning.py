"""A model that thinks, through the real ensemble: what is thought and what is said stay apart."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

THOUGHT, ANSWER = "The guest greets me.", "Hello to you!"
ASKED = {"model": "thinker", "messages": [{"role": "user", "content": "Hello!"}]}


@pytest.fixture
def thinker(scripted_stack) -> Iterator[openai.OpenAI]:
    base = f"{scripted_stack.url}/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("stream", [True, False])
def test_a_spent_budget_ends_the_thought_and_the_answer_follows(thinker, stream):
    """The script knows another answer to a prompt that ends with the end of a thought."""
    extra = {"thinking_token_budget": 4}
    if stream:
        options = {"include_usage": True}
        chunks = thinker.chat.completions.create(
            **ASKED, stream=True, stream_options=options, extra_body=extra
        )
        thought, said, usage = "", "", None
        for chunk in chunks:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                thought += getattr(choice.delta, "reasoning", None) or ""
                said += choice.delta.content or ""
    else:
        answer = thinker.chat.completions.create(**ASKED, extra_body=extra)
        message, usage = answer.choices[0].message, answer.usage
        thought, said = message.reasoning or "", message.content
    assert said == "Hello at once!"
    assert THOUGHT.startswith(thought)
    assert len(thought) < len(THOUGHT)
    assert usage.completion_tokens_details.reasoning_tokens == 4
