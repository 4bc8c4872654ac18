"""OpenAI's own Python SDK against the whole stack."""

from __future__ import annotations

import asyncio

import openai
import pytest

MESSAGES = [{"role": "user", "content": "Hello!"}]


def counts(usage) -> tuple[int, int, int]:
    """Without what the cache held, which the second of two equal requests has more of."""
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def test_a_chat_completion_is_a_whole_english_sentence(client):
    completion = client.chat.completions.create(model="demo", messages=MESSAGES)
    (choice,) = completion.choices
    assert choice.finish_reason == "stop"
    assert choice.message.role == "assistant"
    assert choice.message.content[0].isupper()
    assert choice.message.content[-1] in ".!?"
    usage = completion.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_adds_up_to_the_whole_answer(client):
    whole = client.chat.completions.create(model="demo", messages=MESSAGES)
    stream = client.chat.completions.create(
        model="demo", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert counts(last.usage) == counts(whole.usage)


def test_the_sdks_own_accumulator_agrees(client):
    whole = client.chat.completions.create(model="demo", messages=MESSAGES)
    with client.chat.completions.stream(
        model="demo", messages=MESSAGES, stream_options={"include_usage": True}
    ) as stream:
        folded = stream.get_final_completion()
    assert folded.choices[0].message.content == whole.choices[0].message.content
    assert folded.choices[0].finish_reason == whole.choices[0].finish_reason
    assert counts(folded.usage) == counts(whole.usage)


def test_async_clients_side_by_side(stack):
    async def ask(client: openai.AsyncOpenAI, stream: bool) -> str:
        answer = await client.chat.completions.create(
            model="demo", messages=MESSAGES, stream=stream
        )
        if not stream:
            return answer.choices[0].message.content
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])

    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none") as client:
            return await asyncio.gather(*(ask(client, i % 2 == 0) for i in range(10)))

    assert len(set(asyncio.run(run()))) == 1


def test_text_completions_from_text_and_from_ids(client):
    from_text = client.completions.create(
        model="endless", prompt="abc", max_tokens=8, temperature=0
    )
    assert from_text.choices[0].finish_reason == "length"
    assert from_text.usage.completion_tokens == 8
    ids = [ord(letter) for letter in "abc"]
    from_ids = client.completions.create(model="endless", prompt=ids, max_tokens=8, temperature=0)
    assert from_ids.usage.prompt_tokens == 3


def test_the_same_seed_gives_the_same_text_and_another_seed_another(client):
    def sampled(seed: int) -> str:
        answer = client.completions.create(
            model="endless", prompt="abc", max_tokens=40, temperature=1, top_p=0.9, seed=seed
        )
        return answer.choices[0].text

    assert sampled(7) == sampled(7) != sampled(8)


def test_the_default_token_limit_is_what_the_context_leaves(client):
    answer = client.chat.completions.create(
        model="endless",
        messages=MESSAGES,
        temperature=0,
        extra_body={"prompt_token_ids": [300] * 4000},
    )
    assert answer.usage.total_tokens == 4096
    assert answer.choices[0].finish_reason == "length"


def test_the_default_token_limit_of_completions_is_openais(client):
    answer = client.completions.create(model="endless", prompt="abc", temperature=0)
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


def test_models_and_aliases(client):
    assert [model.id for model in client.models.list()] == ["demo", "endless"]
    assert client.models.retrieve("demo").object == "model"
    alias = client.chat.completions.create(model="gpt-4o-mini", messages=MESSAGES)
    assert alias.model == "gpt-4o-mini"


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
        (
            {"logit_bias": {"99999": 1}},
            openai.BadRequestError,
            "invalid_parameter",
            "logit_bias",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_sdks_own(client, fields, kind, code, param, stream):
    with pytest.raises(kind) as caught:
        client.chat.completions.create(
            **{"model": "demo", "messages": MESSAGES, "stream": stream, **fields}
        )
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
