"""`nvext` on both endpoints: what reaches the engine, and the extra fields of the answer."""

from __future__ import annotations

import json

import pytest

from proxy.domain.constraint import GuideKind
from proxy.domain.output import FinishReason
from tests.api.formats import BOTH, CHAT, CHAT_BODY, TEXT, TEXT_BODY, error_of
from tests.doubles.engine import FACTS, ScriptedEngine, deltas
from tests.doubles.tokenizer import BOS

ALL = ["request_id", "formatted_prompt", "token_ids", "timing"]


def post(serve, path: str, body: dict, nvext: dict, **fields):
    """The response, and what the engine got."""
    engine = ScriptedEngine(deltas("ab"))
    client = serve(engine, max_priority=9)
    response = client.post(path, json={**body, **fields, "nvext": nvext})
    return response, engine.requests


@BOTH
def test_its_sampling_reaches_the_engine(serve, path, body):
    given = {"ignore_eos": True, "top_k": 3, "repetition_penalty": 1.5}
    hints = {"agent_hints": {"priority": 4}}
    response, (seen,) = post(serve, path, body, {**given, **hints})
    assert response.status_code == 200
    assert {name: getattr(seen.sampling, name) for name in given} == given
    assert seen.priority == 4, "as the engine has it: a higher one first"


@pytest.mark.parametrize("name", ["greedy_sampling", "greed_sampling"])
@BOTH
def test_greedy_sampling_is_so_whatever_the_temperature(serve, path, body, name):
    _, (seen,) = post(serve, path, body, {name: True}, temperature=1.5)
    assert seen.sampling.temperature == 0
    _, (seen,) = post(serve, path, body, {name: False}, temperature=1.5)
    assert seen.sampling.temperature == 1.5


@pytest.mark.parametrize(
    ("guided", "constraint"),
    [
        ({"guided_json": {"type": "null"}}, (GuideKind.JSON_SCHEMA, '{"type": "null"}')),
        ({"guided_regex": "a+"}, (GuideKind.REGEX, "a+")),
        ({"guided_choice": ["a", "b"]}, (GuideKind.REGEX, "a|b")),
        ({"guided_grammar": 'root ::= "a"'}, (GuideKind.GRAMMAR, 'root ::= "a"')),
    ],
)
@BOTH
def test_its_guides_are_those_of_the_body(serve, path, body, guided, constraint):
    for beside in ({}, guided):
        response, (seen,) = post(serve, path, body, guided, **beside)
        assert response.status_code == 200, response.text
        assert (seen.constraint.kind, seen.constraint.text) == constraint


@pytest.mark.parametrize(
    ("nvext", "fields", "param"),
    [
        ({"top_k": 3}, {"top_k": 4}, "nvext.top_k"),
        ({"ignore_eos": True}, {"ignore_eos": False}, "nvext.ignore_eos"),
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1}, "nvext.repetition_penalty"),
        ({"agent_hints": {"priority": 4}}, {"priority": 4}, "nvext.agent_hints.priority"),
        ({"token_data": [1]}, {"prompt_token_ids": [2]}, "nvext.token_data"),
        ({"greedy_sampling": True, "greed_sampling": False}, {}, "nvext.greed_sampling"),
        ({"repetition_penalty": 0}, {}, "nvext.repetition_penalty"),
        ({"repetition_penalty": 2.1}, {}, "nvext.repetition_penalty"),
        ({"guided_regex": "a"}, {"guided_regex": "b"}, "nvext.guided_regex"),
        ({"guided_choice": ["a"]}, {"json_schema": {"type": "null"}}, "json_schema"),
        ({"guided_json": {}}, {"response_format": {"type": "json_object"}}, "nvext.guided_json"),
        ({"annotations": ["timing"]}, {}, "nvext.annotations"),
        ({"annotations": ["llm_metrics"]}, {"stream": True}, "nvext.annotations[0]"),
        ({"extra_fields": ["routed_experts"]}, {}, "nvext.extra_fields[0]"),
        ({"use_raw_prompt": True}, {"add_generation_prompt": True}, "add_generation_prompt"),
        ({"use_raw_prompt": True, "token_data": [1]}, {}, "nvext.use_raw_prompt"),
        ({"token_data": []}, {}, "nvext.token_data"),
        ({"max_thinking_tokens": 5}, {"thinking_token_budget": 6}, "nvext.max_thinking_tokens"),
        ({"max_thinking_tokens": 5}, {"truncate_prompt_tokens": 6}, "truncate_prompt_tokens"),
    ],
)
def test_what_contradicts_or_is_out_of_range_is_refused_by_name(serve, nvext, fields, param):
    response, seen = post(serve, CHAT, CHAT_BODY, nvext, **fields)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "invalid_parameter")
    assert error["param"] == param
    assert not seen


def test_a_budget_of_reasoning_is_the_chats_own_field(serve):
    response, _ = post(serve, CHAT, CHAT_BODY, {"max_thinking_tokens": 5})
    assert error_of(response)["param"] == "thinking_token_budget", "this model has no reasoning"
    response, _ = post(serve, TEXT, TEXT_BODY, {"max_thinking_tokens": 5})
    assert error_of(response)["param"] == "nvext.max_thinking_tokens"


@BOTH
def test_the_same_value_twice_is_no_contradiction(serve, path, body):
    nvext = {"top_k": 3, "agent_hints": {"priority": -2}}
    response, _ = post(serve, path, body, nvext, top_k=3, priority=2)
    assert response.status_code == 200


@pytest.mark.parametrize(
    "name",
    ["backend_instance_id", "session_control", "anything"],
)
@BOTH
def test_what_it_does_not_have_is_refused_by_name(serve, path, body, name):
    response, _ = post(serve, path, body, {name: 1})
    error = error_of(response)
    assert (error["code"], error["param"]) == ("unsupported_parameter", f"nvext.{name}")


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, CHAT_BODY), (TEXT, TEXT_BODY), (TEXT, {**TEXT_BODY, "prompt": [5]})]
)
def test_token_data_is_the_prompt(serve, path, body):
    response, seen = post(serve, path, body, {"token_data": [5]})
    assert response.status_code == 200
    assert [(one.token_ids, one.text) for one in seen] == [((5,), None)]


def test_other_ids_than_the_prompts_own_contradict_it(serve):
    response, _ = post(serve, TEXT, {**TEXT_BODY, "prompt": [5]}, {"token_data": [6]})
    assert error_of(response)["param"] == "nvext.token_data"


def test_a_raw_prompt_has_no_template_around_it(serve):
    _, (seen,) = post(serve, CHAT, CHAT_BODY, {"use_raw_prompt": True})
    assert (seen.text, seen.add_special_tokens) == ("hi", True)
    _, (seen,) = post(serve, TEXT, TEXT_BODY, {"use_raw_prompt": True})
    assert seen.text == "hi"
    two = {**CHAT_BODY, "messages": CHAT_BODY["messages"] * 2}
    response, _ = post(serve, CHAT, two, {"use_raw_prompt": True})
    assert error_of(response)["param"] == "nvext.use_raw_prompt"


def annotations(text: str) -> dict:
    """Comments of a stream, in their order."""
    comments = [line[2:].partition(" ") for line in text.split("\n") if line.startswith(": ")]
    return {name: json.loads(value) for name, _, value in comments}


def test_annotations_are_comments_around_the_chunks(serve):
    response, _ = post(serve, CHAT, CHAT_BODY, {"annotations": ALL}, stream=True, n=2)
    told = annotations(response.text)
    assert list(told) == ALL
    chunk = json.loads(next(li[6:] for li in response.text.split("\n") if li.startswith("data: ")))
    assert told["request_id"] == chunk["id"]
    assert told["formatted_prompt"] == "<user>hi\n<assistant>"
    assert told["token_ids"] == list(told["formatted_prompt"].encode())
    timing = told["timing"]
    assert 0 <= timing["ttft_ms"] <= timing["total_time_ms"] < 60_000
    assert timing["request_received_ms"] > 1_700_000_000_000
    assert timing["kv_hit_rate"] == round(4 / 7, 4)
    assert response.text.index(": token_ids") < response.text.index("data: ")
    assert response.text.index('"finish_reason":"stop"') < response.text.index(": timing")


def test_annotations_of_a_list_of_prompts_are_lists(serve):
    nvext = {"annotations": ["formatted_prompt", "token_ids"]}
    response, _ = post(serve, TEXT, {**TEXT_BODY, "prompt": ["a", "b"]}, nvext, stream=True)
    told = annotations(response.text)
    assert told == {"formatted_prompt": ["a", "b"], "token_ids": [[BOS, 97], [BOS, 98]]}


def test_a_refused_prompt_is_refused_before_the_stream(serve):
    long = {**TEXT_BODY, "prompt": "x" * FACTS.context_length}
    response, seen = post(serve, TEXT, long, {"annotations": ["token_ids"]}, stream=True)
    assert error_of(response)["code"] == "context_length_exceeded"
    assert not seen


@BOTH
def test_extra_fields_are_in_the_whole_answer_and_in_the_last_choices_chunk(serve, path, body):
    nvext = {"extra_fields": ["timing", "worker_id"]}
    whole, _ = post(serve, path, body, nvext)
    told = whole.json()["nvext"]
    assert told.keys() == {"timing", "worker_id"}
    assert told["timing"]["kv_hit_rate"] == round(4 / 7, 4)
    options = {"include_usage": True}
    streamed, _ = post(serve, path, body, nvext, stream=True, n=2, stream_options=options)
    chunks = [json.loads(li[6:]) for li in streamed.text.split("\n") if li.startswith("data: {")]
    (having,) = [chunk for chunk in chunks if "nvext" in chunk]
    assert having is chunks[-2], "the last is of usage alone"
    assert having["choices"][0]["finish_reason"] == FinishReason.STOP.value
    assert having["nvext"]["worker_id"] == told["worker_id"]
    only, _ = post(serve, path, body, {"extra_fields": ["worker_id"]})
    assert only.json()["nvext"].keys() == {"worker_id"}
    assert "nvext" not in post(serve, path, body, {"top_k": 1})[0].json()


def test_a_socket_tells_annotations_as_messages(serve):
    client = serve(ScriptedEngine(deltas("ab")))
    with client.websocket_connect("/v1/chat/completions/ws") as socket:
        socket.send_json({**CHAT_BODY, "nvext": {"annotations": ["token_ids"]}})
        first = socket.receive_json()
        assert (first["type"], first["name"]) == ("annotation", "token_ids")
        assert first["value"] == list(b"<user>hi\n<assistant>")
        assert socket.receive_json()["object"] == "chat.completion.chunk"
