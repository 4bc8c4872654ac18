"""Each parameter of each kind of adopted model: as with our own model, or refused by name."""

from __future__ import annotations

import json
import re

import openai
import pytest

from tests.fixtures.adopted import LORAS
from tests.server.adopted.conftest import KINDS, MESSAGES, SAMPLED, greedy
from tests.server.test_tools import IN_ROME, TOOLS, calls

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": PERSON}}
PROMPT = "<|im_start|>user\nHello! Who are you?<|im_end|>\n<|im_start|>assistant\n"
# Field -> (value, the kinds that honor it). Fields that each kind honors or emulates are elsewhere.
GUIDED = ("vllm", "cpp")  # the engine of `bls` cannot be seen in its configuration
CPP = ("cpp", "bls", "bls_sum")
FIELDS = {
    "temperature": (0.9, SAMPLED),
    "top_p": (0.9, SAMPLED),
    "top_k": (7, SAMPLED),
    "presence_penalty": (1.5, SAMPLED),
    "frequency_penalty": (1.5, SAMPLED),
    "seed": (5, SAMPLED),
    "repetition_penalty": (1.5, ("vllm", *CPP)),
    "min_tokens": (3, ("vllm", *CPP)),
    "bad_words": (["small"], ("vllm", *CPP)),
    "min_p": (0.1, ("vllm",)),
    "ignore_eos": (True, ("vllm",)),
    "stop_token_ids": ([220], ("vllm",)),
    "allowed_token_ids": ([220, 39, 761], ("vllm",)),
    "logprobs": (2, ("vllm",)),
    "return_token_ids": (True, ("vllm",)),
    "guided_grammar": ('root ::= "a" | "b"', GUIDED),
    "logit_bias": ({"39": 5}, ()),
    "echo": (True, KINDS),
    "truncate_prompt_tokens": (5, ()),
    "priority": (1, ()),
    "cache_salt": ("s", ()),
}
REFUSED = [(kind, field) for field, (_, kinds) in FIELDS.items() for kind in set(KINDS) - {*kinds}]
HONORED = [(kind, field) for field, (_, kinds) in FIELDS.items() for kind in kinds]


def completed(client, kind, field: str, **more):
    """With fields that make every parameter visible; those only where the kind takes them."""
    value = FIELDS[field][0]
    fields = {
        "model": kind,
        "prompt": PROMPT,
        "max_tokens": 24,
        **more,
        "extra_body": {field: value},
    }
    if kind in SAMPLED or kind == "demo":
        is_drawn = field in ("temperature", "top_p", "top_k", "min_p")
        fields.setdefault("seed", 3)
        fields.setdefault("temperature", 1.5 if is_drawn or field == "seed" else 0)
        for taken in {field} & {"temperature", "seed"}:
            del fields[taken]
    return client.completions.create(**fields)


@pytest.mark.parametrize(("kind", "field"), sorted(REFUSED))
def test_what_a_kind_cannot_take_is_refused_by_name(client, kind, field):
    with pytest.raises(openai.BadRequestError) as raised:
        completed(client, kind, field)
    assert raised.value.code == "unsupported_parameter"
    assert raised.value.param == field


@pytest.mark.parametrize(("kind", "field"), sorted(HONORED))
def test_what_a_kind_takes_does_what_our_own_model_does(client, kind, field):
    own, theirs = completed(client, "demo", field), completed(client, kind, field)
    assert theirs.choices[0].text == own.choices[0].text
    assert theirs.choices[0].finish_reason == own.choices[0].finish_reason
    assert theirs.usage.prompt_tokens == own.usage.prompt_tokens


def test_log_probabilities_are_those_of_our_own_model(client):
    def entries(kind: str):
        fields = {"logprobs": True, "top_logprobs": 3, "max_tokens": 12}
        answer = client.chat.completions.create(messages=MESSAGES, **greedy(kind), **fields)
        return answer.choices[0].logprobs.content

    for own, theirs in zip(entries("demo"), entries("vllm"), strict=True):
        assert (own.token, own.bytes) == (theirs.token, theirs.bytes)
        assert own.logprob == pytest.approx(theirs.logprob, abs=1e-3)
        assert [one.bytes for one in own.top_logprobs] == [one.bytes for one in theirs.top_logprobs]


def test_log_probabilities_of_a_stream(client):
    fields = {"logprobs": True, "top_logprobs": 1, "stream": True, "max_tokens": 12}
    chunks = client.chat.completions.create(messages=MESSAGES, **greedy("vllm"), **fields)
    found = [one for each in chunks for one in each.choices]
    entries = [entry for one in found if one.logprobs for entry in one.logprobs.content]
    text = "".join(one.delta.content or "" for one in found)
    assert b"".join(bytes(one.bytes) for one in entries).decode() == text


@pytest.mark.parametrize("kind", KINDS)
def test_tools_by_the_models_own_syntax(client, kind):
    fields = {**greedy(kind), "tools": TOOLS}
    choice = client.chat.completions.create(messages=IN_ROME, **fields).choices[0]
    assert (choice.finish_reason, calls(choice)) == (
        "tool_calls",
        [("get_weather", {"city": "Rome"})],
    )


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_strict_tool_is_enforced(client, choice):
    tool = {"type": "function", "function": {"name": "add", "strict": True, "parameters": PERSON}}
    fields = {**greedy("vllm"), "tools": [tool], "tool_choice": choice, "max_tokens": 100}
    found = client.chat.completions.create(messages=MESSAGES, **fields).choices[0]
    ((name, arguments),) = calls(found)
    assert name == "add"
    assert arguments.keys() == {"name", "age"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "vllm"])
def test_a_strict_tool_is_checked_where_it_cannot_be_enforced(client, kind):
    """These engines have no structural tags."""
    fields = {**greedy(kind), "tools": TOOLS, "tool_choice": "required"}
    choice = client.chat.completions.create(messages=IN_ROME, **fields).choices[0]
    assert calls(choice) == [("get_weather", {"city": "Rome"})]
    with pytest.raises(openai.UnprocessableEntityError, match="calls no tool"):
        client.chat.completions.create(messages=MESSAGES, **fields)


@pytest.mark.parametrize("kind", GUIDED)
def test_a_schema_is_enforced(client, kind):
    fields = {**greedy(kind), "response_format": SCHEMA, "max_tokens": 100}
    answer = client.chat.completions.create(messages=MESSAGES, **fields).choices[0]
    assert json.loads(answer.message.content).keys() == {"name", "age"}


@pytest.mark.parametrize("kind", GUIDED)
@pytest.mark.parametrize("guide", [{"guided_regex": "[a-c]{3}"}, {"guided_choice": ["abc", "cab"]}])
def test_a_form_is_enforced(client, kind, guide):
    fields = {**greedy(kind), "prompt": PROMPT, "max_tokens": 20, "extra_body": guide}
    answer = client.completions.create(**fields).choices[0]
    assert re.fullmatch("[a-c]{3}", answer.text)
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in GUIDED])
def test_a_form_is_checked_where_it_cannot_be_enforced(client, kind):
    def completed(expression: str) -> str:
        guide = {"guided_regex": expression}
        fields = {**greedy(kind), "prompt": PROMPT, "max_tokens": 64, "extra_body": guide}
        return client.completions.create(**fields).choices[0].text

    assert completed("I am .*").startswith("I am the demo model")
    with pytest.raises(openai.UnprocessableEntityError, match="guided_regex"):
        completed("[a-c]{3}")


def test_adapters_are_models_of_their_own(client):
    said = client.completions.create(**greedy("vllm"), prompt=PROMPT, max_tokens=8).choices[0].text
    for name in LORAS:
        answer = client.completions.create(**greedy(name), prompt=PROMPT, max_tokens=8)
        assert answer.choices[0].text == f"{name}: {said}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_of_ids_is_sent_as_its_text(client, kind):
    fields = {**greedy(kind), "max_tokens": 6}
    ids = client.post("/../tokenize", body={"model": "demo", "prompt": PROMPT}, cast_to=dict)
    told = client.completions.create(prompt=ids["tokens"], **fields)
    assert (
        told.choices[0].text == client.completions.create(prompt=PROMPT, **fields).choices[0].text
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_echo_with_log_probabilities_is_refused(client, kind):
    fields = {**greedy(kind), "prompt": PROMPT, "max_tokens": 4, "echo": True, "logprobs": 1}
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(**fields)
    assert raised.value.code == "unsupported_parameter"


def test_images_reach_no_text_model(client):
    url = {"url": "data:image/png;base64,iVBORw0KGgo="}
    parts = [{"type": "image_url", "image_url": url}, {"type": "text", "text": "What is it?"}]
    for kind in ("demo", "llmapi", "cpp", "bls", "team"):
        with pytest.raises(openai.BadRequestError, match="image"):
            client.chat.completions.create(
                messages=[{"role": "user", "content": parts}], **greedy(kind)
            )


def test_a_text_model_without_a_tensor_for_max_tokens_refuses_it(client):
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model="team_unbounded", prompt=PROMPT, max_tokens=2)
    assert (raised.value.code, raised.value.param) == ("unsupported_parameter", "max_tokens")
    answer = client.completions.create(model="team_unbounded", prompt=PROMPT)
    assert answer.usage.completion_tokens > 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_special_tokens_is_refused_where_the_engine_cannot_show_it(client, kind):
    fields = {**greedy(kind), "messages": MESSAGES, "max_tokens": 60}
    body = {"skip_special_tokens": False}
    if kind == "vllm":
        assert client.chat.completions.create(**fields, extra_body=body).choices[0].message.content
        return
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**fields, extra_body=body)
    assert (raised.value.code, raised.value.param) == (
        "unsupported_parameter",
        "skip_special_tokens",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_are_the_models_own_or_refused_by_name(client, kind):
    """They need a guide, and log-probabilities of what it allows."""
    question = {"type": "choice", "instructions": "Who?", "choices": [{"value": v} for v in "abc"]}

    def decided(model: str) -> list[float]:
        answer = client.decisions.create(model=model, input="Hello!", questions=[question])
        return [one.probability for one in answer.answers[0].probabilities]

    if kind != "vllm":
        with pytest.raises(openai.BadRequestError, match=repr(kind)) as refused:
            decided(kind)
        assert refused.value.param == "model"
        return
    assert decided(kind) == pytest.approx(decided("demo"), rel=1e-3)
