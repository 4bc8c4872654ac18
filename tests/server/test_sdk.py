"""Token limits, errors and prompts of any size, as OpenAI's own Python SDK sees them.

tests/compat has what applications usually do with it.
"""

from __future__ import annotations

import openai
import pytest

MESSAGES = [{"role": "user", "content": "Hello!"}]


def test_the_default_token_limit_is_what_the_context_leaves(client):
    answer = client.chat.completions.create(
        model="endless",
        messages=MESSAGES,
        temperature=0,
        extra_body={"prompt_token_ids": [300] * 4000},
    )
    assert answer.usage.total_tokens == 4096
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("fields", "kind", "code", "param"),
    [
        ({"model": "nope"}, openai.NotFoundError, "model_not_found", "model"),
        ({"max_tokens": 5000}, openai.BadRequestError, "context_length_exceeded", "max_tokens"),
        (
            {"messages": [{"role": "user", "content": "x y z " * 4000}]},
            openai.BadRequestError,
            "context_length_exceeded",
            "messages",
        ),
        ({"store": True}, openai.BadRequestError, "unsupported_parameter", "store"),
        ({"logit_bias": {"99999": 1}}, openai.BadRequestError, "invalid_parameter", "logit_bias"),
    ],
)
def test_errors_are_the_sdks_own(client, fields, kind, code, param):
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**{"model": "demo", "messages": MESSAGES, **fields})
    assert (caught.value.code, caught.value.param) == (code, param)
    assert caught.value.request_id


def tokenizing_s(stack) -> float:
    """CPU time of the model's tokenizer so far."""
    times = [process.cpu_times() for process in stack.descendants("endless_tokenizer")]
    return sum(one.user + one.system for one in times)


def test_a_prompt_of_two_megabytes_is_refused_quickly_and_one_of_spaces_is_counted(stack, client):
    before_s = tokenizing_s(stack)
    with pytest.raises(openai.BadRequestError, match="more than 4096"):
        client.completions.create(model="endless", prompt="hello world " * 160_000)
    assert tokenizing_s(stack) - before_s < 1
    with pytest.raises(openai.BadRequestError, match="the prompt has 5000,"):
        client.completions.create(model="endless", prompt="\u0001" * 5000)


def test_a_prompt_token_outside_the_vocabulary_is_named(client):
    with pytest.raises(openai.BadRequestError, match="prompt names token 99999, which"):
        client.completions.create(model="endless", prompt=[5, 99999])
