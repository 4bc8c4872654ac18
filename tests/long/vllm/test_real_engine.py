"""What the proxy promises for vLLM holds with a real vLLM, on a CPU, under a real tritonserver."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import httpx
import openai
import pytest

from tests.fixtures.stack import HANG_S, eventually
from tests.long.vllm.server import CONTEXT_LENGTH, LORA, ROWS, WEIGHTS

# The first test may have to make the environment, and starts two engines.
pytestmark = [pytest.mark.xdist_group("vllm"), pytest.mark.timeout(1800)]

MESSAGES = [{"role": "user", "content": "Hello! Who are you?"}]
PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "zip": {"type": "integer"}},
    "required": ["city", "zip"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "visit", "description": "Visit a place", "parameters": PLACE},
}
STRICT = {**TOOL, "function": {**TOOL["function"], "strict": True}}
TOKEN = {"type": "token", "token": 1_000_000}
UNKNOWN_TOKEN = {"structural_tag": {"type": "structural_tag", "format": TOKEN}}


def chat(client: openai.OpenAI, messages=MESSAGES, **fields: Any):
    given = {"model": "vllm", "temperature": 0, "messages": messages, **fields}
    return client.chat.completions.create(**given)


def complete(client: openai.OpenAI, prompt: str = "Hello", **fields: Any):
    given = {"model": "vllm", "temperature": 0, "max_tokens": 8, "prompt": prompt, **fields}
    return client.completions.create(**given)


def content(answer) -> str:
    return answer.choices[0].message.content


class Reference:
    """The same weights in transformers."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
        self._model = AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32)

    def chat(self, messages: list[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text)["input_ids"]

    def greedy(self, text: str, most: int) -> list[int]:
        """The answer's token ids, with the one that ended it."""
        given = self.tokenizer(text, return_tensors="pt")
        kept = ("input_ids", "attention_mask")
        made = self._model.generate(
            **{name: given[name] for name in kept}, max_new_tokens=most, do_sample=False
        )
        return made[0, given["input_ids"].shape[1] :].tolist()

    def embedding(self, text: str) -> list[float]:
        made = self._model.model(**self.tokenizer(text, return_tensors="pt"))
        last = made.last_hidden_state[0, -1].detach()
        return (last / last.norm()).tolist()

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def test_a_greedy_chat_is_that_of_transformers_with_exact_usage(client, reference):
    prompt = reference.chat(MESSAGES)
    wanted = reference.greedy(prompt, 200)
    answer = chat(client)
    assert content(answer) == reference.text(wanted)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == len(reference.ids(prompt))
    assert answer.usage.completion_tokens == len(wanted)


def test_a_stream_is_the_whole_answer_in_pieces(client):
    chunks = [*chat(client, stream=True, stream_options={"include_usage": True})]
    texts = [one.choices[0].delta.content or "" for one in chunks if one.choices]
    whole = chat(client)
    assert "".join(texts) == content(whole)
    assert sum(map(bool, texts)) > 5
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_greedy_completion_is_that_of_transformers_up_to_its_limit(client, reference):
    answer = complete(client, "The weather in Rome", max_tokens=9)
    wanted = reference.greedy("The weather in Rome", 9)
    assert answer.choices[0].text == reference.text(wanted)
    assert answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (
        len(reference.ids("The weather in Rome")),
        9,
    )


def test_a_completion_without_a_tokenizer_has_the_counts_of_the_engine(client):
    ours, theirs = complete(client), complete(client, model="textual")
    assert theirs.choices[0].text == ours.choices[0].text
    assert theirs.usage.prompt_tokens == ours.usage.prompt_tokens
    assert theirs.usage.completion_tokens == ours.usage.completion_tokens == 8


def test_a_strict_tool_is_called_with_what_its_schema_says(client):
    asked = [{"role": "user", "content": "Visit Rome!"}]
    for tools, choice in (([STRICT], "required"), ([TOOL], {"type": "function"})):
        if choice != "required":
            choice = {"type": "function", "function": {"name": "visit"}}
        answer = chat(client, asked, tools=tools, tool_choice=choice, max_tokens=200)
        (call,) = answer.choices[0].message.tool_calls
        found = json.loads(call.function.arguments)
        assert call.function.name == "visit"
        assert found["city"] in ("Paris", "Rome")
        assert found.keys() == {"city", "zip"}


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_response_format_is_enforced(client, temperature):
    form = {"name": "place", "schema": PLACE, "strict": True}
    answer = chat(
        client,
        temperature=temperature,
        seed=1,
        max_tokens=200,
        response_format={"type": "json_schema", "json_schema": form},
    )
    found = json.loads(content(answer))
    assert found["city"] in ("Paris", "Rome")
    assert isinstance(found["zip"], int)


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"guided_regex": r"\d{3}-[ab]{2}"}, r"\d{3}-[ab]{2}"),
        ({"guided_choice": ["a.b", 'c|"d"\n']}, r'a\.b|c\|"d"\n'),
        ({"guided_grammar": 'root ::= "<" root ">" | "o"'}, r"<*o>*"),
        ({"structured_outputs": {"json_object": True}}, r"(?s)\{.*\}"),
    ],
    ids=["regex", "choice", "grammar", "object"],
)
def test_guides_are_enforced(client, form, pattern):
    answer = chat(client, temperature=1, seed=2, max_tokens=300, extra_body=form)
    assert answer.choices[0].finish_reason in ("stop", "length")
    if answer.choices[0].finish_reason == "stop":
        assert re.fullmatch(pattern, content(answer))


def test_a_guide_that_vllm_cannot_compile_is_refused(client):
    """vLLM ends the request with the finish reason "error", and says no more."""
    with pytest.raises(openai.BadRequestError) as raised:
        chat(client, extra_body={"structured_outputs": UNKNOWN_TOKEN})
    assert "cannot be compiled" in raised.value.message
    assert chat(client, max_tokens=1).usage.completion_tokens == 1


def test_log_probabilities_have_the_bytes_of_the_answer(client):
    answer = chat(client, logprobs=True, top_logprobs=3, max_tokens=12)
    entries = answer.choices[0].logprobs.content
    assert b"".join(bytes(one.bytes) for one in entries).decode() == content(answer)
    assert len(entries) == answer.usage.completion_tokens
    for one in entries:
        assert len(one.top_logprobs) == 3
        assert one.logprob == max(each.logprob for each in one.top_logprobs)


def test_log_probabilities_under_a_guide_are_numbers(client):
    """Alternatives that the guide forbids have the log-probability -Infinity in vLLM's JSON."""
    form = {"guided_choice": ["xyz"]}
    answer = chat(client, logprobs=True, top_logprobs=5, extra_body=form)
    assert content(answer) == "xyz"
    for one in answer.choices[0].logprobs.content:
        assert all(-10_000 < each.logprob <= 0 for each in one.top_logprobs)


def test_characters_of_several_tokens_come_whole(client):
    form = {"guided_choice": ["é漢字🦜b"]}
    assert content(chat(client, extra_body=form)) == "é漢字🦜b"
    chunks = chat(client, extra_body=form, stream=True, logprobs=True)
    choices = [one.choices[0] for one in chunks]
    assert "".join(one.delta.content or "" for one in choices) == "é漢字🦜b"
    entries = [each for one in choices if one.logprobs for each in one.logprobs.content]
    assert b"".join(bytes(one.bytes) for one in entries).decode() == "é漢字🦜b"


def test_two_choices_are_those_of_two_seeds(client):
    def said(**fields: Any) -> list[str]:
        answer = complete(client, "Once", temperature=1.5, seed=7, max_tokens=12, **fields)
        return [one.text for one in answer.choices]

    two = said(n=2)
    assert two[0] != two[1]
    assert said(n=2) == two
    assert said()[0] == two[0]


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1])
def test_a_seed_gives_the_same_answer_again(client, seed):
    texts = {
        complete(client, "Once", temperature=1.5, seed=seed, max_tokens=12).choices[0].text
        for _ in range(2)
    }
    assert len(texts) == 1


def test_without_a_seed_answers_differ(client):
    answer = complete(client, "Once", temperature=1.5, max_tokens=12, n=4)
    assert len({one.text for one in answer.choices}) > 1


def test_a_stop_string_ends_the_answer_and_is_cut(client):
    whole = content(chat(client))
    word = whole.split()[3]
    answer = chat(client, stop=[word])
    assert content(answer) == whole.split(word)[0]
    assert answer.choices[0].finish_reason == "stop"


def test_stop_token_ids_and_min_tokens(client, reference):
    ids = reference.greedy(reference.chat(MESSAGES), 200)
    stop = {"stop_token_ids": [ids[4]]}
    first = ids.index(ids[4])
    assert content(chat(client, extra_body=stop)) == reference.text(ids[:first])
    longer = chat(client, extra_body={**stop, "min_tokens": first + 2})
    assert longer.usage.completion_tokens >= first + 2


def test_ignore_eos_goes_on_to_the_limit(client):
    answer = chat(client, max_tokens=150, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 150
    assert answer.choices[0].finish_reason == "length"


def test_bad_words_are_not_said(client):
    word = content(chat(client)).split()[2]
    assert word not in content(chat(client, extra_body={"bad_words": [word]}))


def test_logit_bias_is_refused_by_name(client):
    with pytest.raises(openai.BadRequestError) as raised:
        chat(client, logit_bias={"5": 10})
    assert raised.value.param == "logit_bias"


@pytest.mark.parametrize("leaves", ["stream", "whole"])
def test_vllm_stops_when_the_client_leaves(client, real, leaves):
    before = real.generated()
    body = {"model": "vllm", "prompt": "Once", "max_tokens": 450, "ignore_eos": True}
    body |= {"stream": leaves == "stream"}
    url = f"{real.proxy.url}/v1/completions"
    if leaves == "stream":
        with httpx.stream("POST", url, json=body, timeout=HANG_S) as answer:
            lines = answer.iter_lines()
            for _ in range(6):
                next(lines)
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=body, timeout=0.4)

    def is_idle() -> bool:
        count = real.generated()
        time.sleep(1)
        return count == real.generated()

    eventually(is_idle, 10, "vLLM generates no more tokens")
    assert real.generated() - before < 450
    assert complete(client).usage.completion_tokens == 8


@pytest.mark.parametrize("model", ["vllm", "textual"])
def test_a_prompt_beyond_the_context_is_refused(client, model):
    """For `textual` vLLM refuses it itself."""
    with pytest.raises(openai.BadRequestError) as raised:
        complete(client, "long " * 2000, model=model)
    assert raised.value.code == "context_length_exceeded"
    assert str(CONTEXT_LENGTH) in raised.value.message


def test_an_answer_ends_where_the_context_ends(client):
    answer = chat(client, extra_body={"ignore_eos": True})
    assert answer.usage.total_tokens == CONTEXT_LENGTH
    assert answer.choices[0].finish_reason == "length"


def test_as_many_streams_as_rows_at_once(real, client):
    wanted = content(chat(client))

    async def stream(http: httpx.AsyncClient) -> str:
        body = {"model": "vllm", "messages": MESSAGES, "temperature": 0, "stream": True}
        texts = []
        async with http.stream("POST", f"{real.proxy.url}/v1/chat/completions", json=body) as got:
            async for line in got.aiter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        texts.append(choice["delta"].get("content") or "")
        return "".join(texts)

    async def all_of_them() -> list[str]:
        async with httpx.AsyncClient(timeout=HANG_S) as http:
            return await asyncio.gather(*(stream(http) for _ in range(ROWS)))

    assert set(asyncio.run(all_of_them())) == {wanted}


def test_a_lora_adapter_answers_by_its_name(client):
    assert complete(client, model=LORA).choices[0].text != complete(client).choices[0].text


def test_an_adapter_that_vllm_does_not_know_is_an_error_of_its_name_alone(client):
    """Upstream's text lists all adapters."""
    with pytest.raises(openai.BadRequestError) as raised:
        complete(client, model="ghost")
    assert raised.value.code == "unsupported_parameter"
    assert LORA not in raised.value.message


def test_a_picture_for_a_model_of_text_is_refused(client):
    pixel = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElF"
        "TkSuQmCC"
    )
    url = {"url": f"data:image/png;base64,{pixel}"}
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": url}]
    with pytest.raises(openai.BadRequestError, match="image"):
        chat(client, [{"role": "user", "content": parts}])
    assert chat(client, max_tokens=1).usage.completion_tokens == 1


def test_an_embedding_is_the_last_hidden_state(client, reference):
    texts = ["Hello!", "The weather in Rome"]
    ids = [reference.ids(one) for one in texts]
    of_texts = client.embeddings.create(model="embedder", input=texts)
    of_ids = client.embeddings.create(model="embedder", input=ids)
    assert of_texts.usage.prompt_tokens == of_ids.usage.prompt_tokens == sum(map(len, ids))
    for text, one, same in zip(texts, of_texts.data, of_ids.data, strict=True):
        assert one.embedding == pytest.approx(reference.embedding(text), abs=1e-4)
        assert same.embedding == pytest.approx(one.embedding, abs=1e-6)


def test_embeddings_that_vllm_cannot_make_are_refused(client):
    for fields, param in (
        ({"model": "vllm", "input": "a"}, "model"),
        ({"model": "embedder", "input": "a", "dimensions": 8}, "dimensions"),
    ):
        with pytest.raises(openai.BadRequestError) as raised:
            client.embeddings.create(**fields)
        assert raised.value.param == param
    with pytest.raises(openai.BadRequestError) as raised:
        client.embeddings.create(model="embedder", input="long " * 2000)
    assert raised.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        complete(client, model="embedder")


def test_the_death_of_vllm_is_seen_and_no_fault_of_the_caller(client, real):
    """The last test: only a new start of Triton helps, which calls the model ready all the time.
    The request waits for it.
    """
    real.engine().kill()
    with pytest.raises(openai.APITimeoutError):
        chat(client, extra_body={"guided_choice": ["xyz"]}, timeout=5)
    seen = '"model":"qwen_vllm","reason":"the model \'qwen_vllm\' does not generate'
    eventually(lambda: seen in real.proxy.log.read_text(), 20, "the proxy reports it")
    embedded = client.embeddings.create(model="embedder", input="a")
    assert embedded.usage.prompt_tokens == 1
