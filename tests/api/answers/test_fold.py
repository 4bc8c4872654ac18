"""fold(stream) equals the whole body, field by field, over random parameters."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.api.answers.test_parameters import SeededEngine
from tests.api.formats import CHAT, CHAT_BODY, TEXT, TEXT_BODY, events
from tests.fixtures.examples import examples


def folded(chunks: list[dict], path: str) -> dict:
    """What the chunks of a stream add up to, as a whole body."""
    choices: dict[int, dict] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            _add(choices.setdefault(part["index"], {"index": part["index"]}), part)
    whole = {key: value for key, value in chunks[0].items() if key not in ("choices", "usage")}
    whole["object"] = "chat.completion" if path == CHAT else "text_completion"
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return {**whole, "usage": chunks[-1]["usage"]}


def _add(whole: dict, part: dict) -> None:
    if "delta" in part:
        message = whole.setdefault("message", {"role": None, "content": "", "refusal": None})
        message["role"] = part["delta"].get("role", message["role"])
        message["content"] += part["delta"].get("content", "")
    else:
        whole["text"] = whole.get("text", "") + part["text"]
    if "token_ids" in part:
        whole.setdefault("token_ids", []).extend(part["token_ids"])
    whole["finish_reason"] = part["finish_reason"]
    logprobs = whole.setdefault("logprobs", None)
    if part["logprobs"] is not None:
        whole["logprobs"] = _joined(logprobs, part["logprobs"])


def _joined(whole: dict | None, part: dict) -> dict:
    if whole is None:
        return part
    return {key: (part[key] if part[key] is None else whole[key] + part[key]) for key in part}


FIELDS = {
    "n": st.integers(1, 3),
    "stop": st.lists(st.sampled_from(["d1", "seed", "é", "x", "see"]), max_size=2),
    "include_stop_str_in_output": st.booleans(),
    "min_tokens": st.integers(0, 4),
    "seed": st.integers(0, 100),
    "return_token_ids": st.booleans(),
    "stop_token_ids": st.lists(st.integers(0, 20), max_size=2),
    "service_tier": st.sampled_from(["auto", "default"]),
    "request_id": st.just("mine"),
}
CHAT_FIELDS = {"logprobs": st.just(True), "top_logprobs": st.integers(0, 2)}
TEXT_FIELDS = {
    "prompt": st.sampled_from(["p", ["p", "q"], [1, 2], [[1], [2, 3]]]),
    "logprobs": st.integers(0, 2),
    "echo": st.booleans(),
}


@pytest.mark.parametrize(
    ("path", "body", "more"), [(CHAT, CHAT_BODY, CHAT_FIELDS), (TEXT, TEXT_BODY, TEXT_FIELDS)]
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(data=st.data())
def test_the_stream_folds_to_the_whole_body_field_by_field(serve, path, body, more, data):
    fields = data.draw(st.fixed_dictionaries({}, optional=FIELDS | more))
    if "top_logprobs" in fields:
        fields["logprobs"] = True
    if "logprobs" in fields or not isinstance(fields.get("prompt", "p"), str):
        fields.pop("echo", None)  # the scripted engine gives no log-probabilities of a prompt
    client = serve(SeededEngine())
    whole = client.post(path, json={**body, **fields}).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = folded(events(client.post(path, json={**body, **fields, **options})), path)
    for one in (whole, streamed):
        one.pop("created")
        if "request_id" not in fields:
            one.pop("id")
    assert streamed == whole


def through_openais_chat_stream(chunks: list[dict]) -> dict:
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.get_final_completion().model_dump(exclude_none=True)


def told(whole: dict) -> list[tuple]:
    """What OpenAI's types know of a chat's choices."""
    return [
        (
            choice["index"],
            choice["finish_reason"],
            choice["message"]["role"],
            choice["message"].get("content") or "",
            (choice.get("logprobs") or {}).get("content"),
        )
        for choice in whole["choices"]
    ]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
    max_examples=examples(60),
)
@given(fields=st.fixed_dictionaries({}, optional=FIELDS | CHAT_FIELDS))
def test_openais_own_stream_of_a_chat_adds_up_to_the_whole(serve, fields):
    if "top_logprobs" in fields:
        fields["logprobs"] = True
    client = serve(SeededEngine())
    body = {**CHAT_BODY, **fields}
    whole = ChatCompletion.model_validate(client.post(CHAT, json=body).json())
    options = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = through_openais_chat_stream(events(client.post(CHAT, json={**body, **options})))
    expected = whole.model_dump(exclude_none=True)
    assert told(streamed) == told(expected)
    assert streamed["usage"] == expected["usage"]
    assert streamed["model"] == expected["model"]
