"""Images and embeddings of vLLM's stand-in, from OpenAI's SDK through a real tritonserver."""

from __future__ import annotations

import openai
import pytest
from tokenizers import Tokenizer

from tests.fixtures.pictures import GIF, PNG, data_url
from tests.server.adopted.conftest import TOKENIZER

HELLO = {"type": "text", "text": "Hello! Who are you?"}
PICTURES = [
    {"type": "image_url", "image_url": {"url": data_url(kind, data)}}
    for kind, data in (("png", PNG), ("gif", GIF))
]


def said(client, *parts, model="seeing", **fields):
    messages = [{"role": "user", "content": list(parts)}]
    return client.chat.completions.create(
        model=model, messages=messages, temperature=0, max_tokens=8, **fields
    )


@pytest.mark.parametrize("stream", [False, True])
def test_images_reach_the_engine_in_their_order(client, stream):
    answer = said(client, HELLO, *PICTURES, stream=stream)
    if stream:
        text = "".join(one.choices[0].delta.content or "" for one in answer if one.choices)
    else:
        text = answer.choices[0].message.content
        counted = said(client, HELLO).usage.prompt_tokens
        assert answer.usage.prompt_tokens > counted, "the template has a place for each"
    assert text.startswith(f"[image of {len(PNG)} bytes][image of {len(GIF)} bytes]")


def test_a_large_image_passes_through_the_sandbox_and_the_connection(client):
    large = PNG + bytes(1_400_000)
    part = {"type": "image_url", "image_url": {"url": data_url("png", large)}}
    answer = said(client, HELLO, part, n=2)
    for choice in answer.choices:
        assert choice.message.content.startswith(f"[image of {len(large)} bytes]")


@pytest.mark.parametrize("model", ["vllm", "llmapi", "cpp", "demo"])
def test_a_model_that_reads_no_images_says_so(client, model):
    with pytest.raises(openai.BadRequestError) as refused:
        said(client, HELLO, PICTURES[0], model=model)
    assert (refused.value.code, refused.value.param) == (
        "unsupported_parameter",
        "messages[0].content[1]",
    )


def test_each_text_gets_a_vector_with_the_engines_count(client):
    tokens = len(tokenized("Hello!"))
    found = client.embeddings.create(model="embedder", input=["Hello!", "Hello! Hello!"])
    first, second = (one.embedding for one in found.data)
    assert (len(first), first[0], first[2]) == (8, tokens, 0.5)
    assert second[0] > first[0]
    assert found.usage.prompt_tokens == first[0] + second[0]


def test_ids_and_dimensions_are_the_engines(client):
    ids = tokenized("Hello!")
    found = client.embeddings.create(model="embedder", input=ids, dimensions=4)
    assert found.data[0].embedding == [len(ids), ids[0], 0.5, 0.5]
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="embedder", input="a", dimensions=5)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "dimensions")


def test_many_inputs_are_embedded_in_their_order(client):
    found = client.embeddings.create(model="embedder", input=["word " * n for n in range(1, 201)])
    sizes = [one.embedding[0] for one in found.data]
    assert len(sizes) == 200
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("model", ["vllm", "llmapi", "cpp", "team", "demo"])
def test_a_model_that_does_not_embed_says_so(client, model):
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model=model, input="a")
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "model")


def test_a_model_that_embeds_does_not_generate(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="embedder", prompt="a", max_tokens=1)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "model")


def test_a_text_beyond_the_context_is_refused(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="embedder", input=["a", "long " * 5000])
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")


def tokenized(text: str) -> list[int]:
    return Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json").encode(text).ids


@pytest.mark.parametrize("stream", [False, True])
def test_images_of_responses_reach_the_engine(client, stream):
    parts = [{"type": "input_text", "text": HELLO["text"]}]
    parts += [
        {"type": "input_image", "image_url": one["image_url"]["url"], "detail": "auto"}
        for one in PICTURES
    ]
    given = [{"type": "message", "role": "user", "content": parts}]
    answer = client.responses.create(
        model="seeing", input=given, temperature=0, max_output_tokens=8, stream=stream
    )
    if stream:
        *_, last = answer
        answer = last.response
    assert answer.output_text.startswith(f"[image of {len(PNG)} bytes][image of {len(GIF)} bytes]")
