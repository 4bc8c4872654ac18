"""`runtime: vllm`: our ensemble over a real vLLM on a CPU, served by `triton-openai serve`, and the
same weights on the onnx runtime.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.fixtures.stack import PLAIN, Stack, eventually
from tests.long.vllm.own import (
    CONTEXT,
    ONNX,
    PROMPTS,
    ROWS,
    START_S,
    VLLM,
    is_alive,
    vllm_processes,
)
from tests.long.vllm.server import WEIGHTS

pytestmark = pytest.mark.xdist_group("own_vllm")

LONG = {"prompt": "Hello", "max_tokens": CONTEXT - 8, "extra_body": {"ignore_eos": True}}
PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "zip": {"type": "integer"}},
    "required": ["city", "zip"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "visit", "parameters": PLACE, "strict": True}}


@pytest.fixture
def client(ours: Stack) -> Iterator[openai.OpenAI]:
    ours.wait_ready(within_s=START_S)
    with openai.OpenAI(base_url=f"{ours.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def complete(client: openai.OpenAI, model: str = VLLM, **fields: Any) -> Any:
    given = {"model": model, "prompt": "Hello", "temperature": 0, "max_tokens": 24, **fields}
    return client.completions.create(**given)


def text(client: openai.OpenAI, model: str = VLLM, **fields: Any) -> str:
    return complete(client, model, **fields).choices[0].text


def chat(client: openai.OpenAI, asked: str, model: str = VLLM, **fields: Any) -> Any:
    messages = [{"role": "user", "content": asked}]
    return client.chat.completions.create(model=model, temperature=0, messages=messages, **fields)


def test_greedy_text_is_that_of_the_onnx_runtime_and_of_transformers(client):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    model = AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32)
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        made = model.generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :]
        wanted = tokenizer.decode(made, skip_special_tokens=True)
        assert text(client, prompt=prompt) == text(client, ONNX, prompt=prompt) == wanted


def test_a_chat_ends_at_the_end_token_with_the_same_usage(client):
    for asked in ("Hello! Who are you?", "What is a proxy?"):
        ours, theirs = (chat(client, asked, model, max_tokens=300) for model in (VLLM, ONNX))
        assert ours.choices[0].message.content == theirs.choices[0].message.content
        assert ours.choices[0].finish_reason == theirs.choices[0].finish_reason == "stop"
        assert ours.usage.completion_tokens == theirs.usage.completion_tokens


def test_log_probabilities_are_those_of_the_onnx_runtime(client):
    wanted = {"logprobs": 3, "max_tokens": 6, "echo": True, "prompt": "The weather in Rome"}
    ours, theirs = (complete(client, model, **wanted).choices[0] for model in (VLLM, ONNX))
    assert ours.text == theirs.text
    assert ours.logprobs.tokens == theirs.logprobs.tokens
    assert ours.logprobs.token_logprobs[0] is None
    assert ours.logprobs.token_logprobs[1:] == pytest.approx(
        theirs.logprobs.token_logprobs[1:], abs=2e-3
    )
    for mine, other in zip(ours.logprobs.top_logprobs, theirs.logprobs.top_logprobs, strict=True):
        assert mine is None or mine.keys() == other.keys()


@pytest.mark.parametrize("more", [{}, {"logprobs": 2}])
def test_an_echo_alone_has_the_prompt_and_nothing_else(client, more):
    answer = complete(client, echo=True, max_tokens=0, prompt="The weather", **more)
    assert answer.choices[0].text == "The weather"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 0


def test_each_parameter_reaches_vllm(client):
    """Those that choose tokens do so as on the onnx runtime, on which they are tested."""
    by_id = complete(client, extra_body={"return_token_ids": True}).choices[0].token_ids
    for more in (
        {"logit_bias": {str(by_id[0]): -100}},
        {"extra_body": {"allowed_token_ids": by_id[1:4]}},
        {"extra_body": {"bad_words": ["llo", " the", " proxy"]}},
        {"extra_body": {"stop_token_ids": by_id[2:3]}},
        {"extra_body": {"stop_token_ids": by_id[2:3], "min_tokens": 5}},
        {"extra_body": {"repetition_penalty": 1.5}},
        {"presence_penalty": 1.5, "frequency_penalty": 1.0},
        {"extra_body": {"ignore_eos": True}, "max_tokens": 60},
        {"temperature": 1, "extra_body": {"top_k": 1}},
        {"temperature": 1, "extra_body": {"min_p": 1}},
        {"temperature": 1, "top_p": 1e-6},
        {"extra_body": {"priority": 7, "cache_salt": "mine"}},
    ):
        assert text(client, **more) == text(client, ONNX, **more), more


def test_values_that_vllm_cannot_take_are_refused_by_name_and_harm_nobody(client):
    for param, more in (
        ("logit_bias", {"logit_bias": {"2048": 1}}),
        ("allowed_token_ids", {"extra_body": {"allowed_token_ids": [5000]}}),
        ("lora", {"model": "nobody"}),
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            complete(client, **more)
        assert refused.value.status_code in (400, 404)
        assert param in str(refused.value) or refused.value.status_code == 404
    assert text(client)


def test_seeds_repeat_an_answer_and_choices_differ(client):
    wanted = {"temperature": 1.3, "n": 3, "prompt": "Tell me"}
    first, second = (complete(client, seed=5, **wanted) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert texts == [choice.text for choice in second.choices]
    assert len(set(texts)) == 3
    assert text(client, **{**wanted, "n": 1}) != text(client, **{**wanted, "n": 1})


def test_a_seed_repeats_an_answer_beside_requests_without_one(client):
    seeded = {"temperature": 1, "seed": 5, "max_tokens": 200, "extra_body": {"ignore_eos": True}}
    alone = text(client, **seeded)
    others = [{**seeded, "seed": None}, {**seeded, "temperature": 0}, seeded]
    with ThreadPoolExecutor(len(others)) as pool:
        found = pool.map(lambda more: text(client, **more), others)
    assert [*found][-1] == alone


@pytest.mark.parametrize(
    ("guide", "pattern"),
    [
        ({"guided_regex": "[0-9]{3}-[a-z]{2}"}, r"\d{3}-[a-z]{2}"),
        ({"guided_regex": "[0-9]{3}-[a-z]{2}", "ignore_eos": True}, r"\d{3}-[a-z]{2}"),
        ({"guided_grammar": 'root ::= ("yes" | "no") "!"'}, "(yes|no)!"),
        ({"guided_choice": ["red\n", 'a "b"']}, 'red\n|a "b"'),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_guides_are_those_of_the_onnx_runtime(client, guide, pattern, temperature):
    wanted = {"extra_body": guide, "temperature": temperature, "seed": 3, "max_tokens": 40}
    answer = complete(client, **wanted).choices[0]
    assert re.fullmatch(pattern, answer.text)
    assert answer.finish_reason == "stop"
    if temperature == 0:
        assert answer.text == text(client, ONNX, **wanted)


def test_a_strict_schema_and_a_strict_tool_are_enforced(client):
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": PLACE, "strict": True}}
    answer = chat(client, "Where?", response_format=form, max_tokens=200)
    assert json.loads(answer.choices[0].message.content).keys() == {"city", "zip"}
    called = chat(client, "Visit Rome!", tools=[TOOL], tool_choice="required", max_tokens=300)
    (call, *_) = called.choices[0].message.tool_calls
    assert call.function.name == "visit"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")


def test_keywords_that_vllm_refuses_are_served_and_checked(client):
    """vLLM's own conversion of schemas refuses multipleOf; the proxy checks it afterwards."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 1}}}
    schema |= {"required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": schema, "strict": True}}
    answer = chat(client, "A number?", response_format=form, max_tokens=60)
    assert isinstance(json.loads(answer.choices[0].message.content)["n"], int)


def test_a_lora_adapter_answers_by_its_name(client):
    assert text(client, "poet") != text(client)
    assert text(client, "poet") == text(client, "poet")


def test_a_repeated_prompt_comes_from_the_cache_unless_its_salt_differs(client):
    prompt = "word " * 300
    complete(client, prompt=prompt)
    again = complete(client, prompt=prompt).usage
    assert again.prompt_tokens_details.cached_tokens > 128
    salted = complete(client, prompt=prompt, extra_body={"cache_salt": "other"}).usage
    assert salted.prompt_tokens_details.cached_tokens == 0


def test_twice_as_many_streams_as_rows_have_the_answers_of_one(client, ours):
    wanted = [text(client, prompt=prompt) for prompt in PROMPTS]
    jobs = PROMPTS * (2 * ROWS // len(PROMPTS))
    most = [0.0]
    with ThreadPoolExecutor(2 * ROWS) as pool:
        found = [pool.submit(text, client, prompt=prompt) for prompt in jobs]
        while not all(one.done() for one in found):
            most.append(ours.engine(VLLM)["rows_decoding"])
    assert [one.result() for one in found] == wanted * (len(jobs) // len(wanted))
    assert max(most) <= ROWS


def running(stack: Stack) -> bool:
    return stack.engine(VLLM)["rows_decoding"] > 0


@pytest.mark.parametrize("how", ["the client leaves", "a stop string", "the deadline"])
def test_the_row_of_an_answer_that_is_over_is_free(client, ours, how):
    before = ours.settled_engine(VLLM)
    if how == "a stop string":
        said = text(client)[4:7]
        before = ours.settled_engine(VLLM)
        assert complete(client, stop=[said], **LONG).choices[0].finish_reason == "stop"
    elif how == "the deadline":
        with pytest.raises(openai.APIStatusError) as late:
            complete(client, "brief", **LONG)
        assert late.value.code == "deadline_exceeded"
    else:
        with complete(client, stream=True, **LONG) as stream:
            next(iter(stream))
            eventually(lambda: running(ours), 5, "it has a row, and the metrics say so")
            metrics = PLAIN.get(f"http://127.0.0.1:{ours.triton_metrics_port}/metrics").text
            assert 'kv_cache_block_type="used",model="fast_engine",version="1"} 0' not in metrics
    after = ours.settled_engine(VLLM)
    assert after["requests_cancelled"] == before["requests_cancelled"] + 1
    assert after["generated_tokens"] - before["generated_tokens"] < LONG["max_tokens"] / 2
    assert (after["rows_decoding"], after["requests_waiting"]) == (0, 0)


def test_the_engines_times_come_with_an_answer(client, ours):
    complete(client)
    lines = [json.loads(line) for line in ours.log.read_text().splitlines() if line[:1] == "{"]
    stages = [line["stages_ms"] for line in lines if line.get("model") == VLLM]
    assert any({"engine queue", "prefill", "decode"} <= found.keys() for found in stages)


def test_a_canary_moves_a_model_from_one_runtime_to_the_other(client, ours):
    for header, model in (({}, ONNX), ({"x-try": "1"}, VLLM)):
        before = ours.settled_engine(model)["requests_finished"]
        answer = complete(client, "mixed", extra_headers=header)
        assert answer.choices[0].text == text(client, ONNX)
        wanted = 2 if model == ONNX else 1
        assert ours.settled_engine(model)["requests_finished"] == before + wanted


@pytest.mark.parametrize("victim", ["engine", "stub"])
def test_a_killed_engine_is_started_again_and_leaves_no_process(client, ours, victim):
    """The proxy sends running requests again while it has patience."""
    processes = vllm_processes(ours)
    assert processes
    if victim == "engine":
        (dead,) = [one for one in processes if one.name().startswith("VLLM::EngineCor")]
    else:
        (dead,) = ours.engine_processes(VLLM)
    wanted = {"max_tokens": 400, "extra_body": {"ignore_eos": True}}
    outcome: list[Any] = []

    def generate() -> None:
        try:
            outcome.append(text(client, **wanted))
        except openai.OpenAIError as error:
            outcome.append(error)

    thread = threading.Thread(target=generate)
    thread.start()
    eventually(lambda: running(ours), 10, "it runs")
    dead.kill()
    eventually(lambda: not any(map(is_alive, processes)), 10, "all its processes have ended")
    thread.join(300)
    ours.wait_ready(within_s=START_S)
    if isinstance(outcome[0], str):  # else Triton took too long to come back
        assert outcome == [text(client, **wanted)]
    else:
        assert isinstance(outcome[0], openai.InternalServerError)
    assert text(client) == text(client, ONNX)
