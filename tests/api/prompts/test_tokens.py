"""/tokenize, /detokenize, …/render and the lists of models: nothing is generated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine
from tests.doubles.tokenizer import BOS

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
RENDER = "/v1/chat/completions/render"
MESSAGES = [{"role": "user", "content": "hi"}]
RENDERED = "<user>hi\n<assistant>"
CHAT = {"model": "demo", "messages": MESSAGES}


def error_of(response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"prompt": "hé"}, [BOS, *"hé".encode()]),
        ({"prompt": "hi", "add_special_tokens": False}, [*b"hi"]),
        ({"prompt": ""}, [*b"<s>"]),
        ({"prompt": "", "add_special_tokens": True}, [BOS]),
        ({"messages": MESSAGES}, [*RENDERED.encode()]),
        ({"messages": MESSAGES, "add_special_tokens": True}, [BOS, *RENDERED.encode()]),
        ({"messages": MESSAGES, "add_generation_prompt": False}, [*b"<user>hi\n"]),
        ({"messages": MESSAGES, "continue_final_message": True}, [*b"<user>hi"]),
    ],
)
def test_text_or_messages_become_ids(idle, body, ids):
    answer = idle.post(TOKENIZE, json={"model": "demo", **body}).json()
    assert answer == {"count": len(ids), "max_model_len": 128, "tokens": ids, "token_strs": None}


def test_tools_are_a_part_of_the_prompt(serve):
    template = "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}<tool_call>"
    catalog = FixedCatalog(facts=replace(FACTS, chat_template=template))
    body = {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f"}}]}
    answer = serve(ScriptedEngine(), catalog).post(TOKENIZE, json=body).json()
    assert answer["tokens"] == [*b"<f><tool_call>"]


def test_a_history_that_ends_with_open_calls_can_be_counted_but_not_answered(serve):
    template = "{% for m in messages %}{{ m.tool_calls | length }}{% endfor %}"
    catalog = FixedCatalog(facts=replace(FACTS, chat_template=template))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {"messages": [{"role": "assistant", "tool_calls": [call]}]}
    client = serve(ScriptedEngine(), catalog)
    counted = client.post(TOKENIZE, json={**body, "add_generation_prompt": False})
    assert counted.json()["tokens"] == [*b"1"]
    expected = (400, "invalid_messages", "messages[0].tool_calls[0].id")
    assert error_of(client.post(TOKENIZE, json=body)) == expected


def test_the_tokens_texts_where_asked_for(idle):
    body = {"prompt": "hé", "return_token_strs": True}
    answer = idle.post(TOKENIZE, json=body).json()
    assert answer["token_strs"] == ["", "h", "\ufffd", "\ufffd"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "invalid_parameter", "prompt")),
        ({"prompt": "x", "messages": MESSAGES}, (400, "invalid_parameter", "prompt")),
        ({"prompt": "x", "model": "nope"}, (404, "model_not_found", "model")),
        ({"prompt": "x", "tools": []}, (400, "invalid_parameter", "tools")),
        ({"prompt": "x" * 200}, (400, "context_length_exceeded", "prompt")),
        (
            {"messages": [{"role": "user", "content": "x" * 200}]},
            (400, "context_length_exceeded", "messages"),
        ),
    ],
)
def test_what_cannot_be_tokenized(idle, body, expected):
    assert error_of(idle.post(TOKENIZE, json=body)) == expected


@pytest.mark.parametrize(("ids", "text"), [([BOS, *"hé!".encode()], "hé!"), ([], ""), ([BOS], "")])
def test_ids_become_text(idle, ids, text):
    body = {"model": "demo", "tokens": ids}
    assert idle.post(DETOKENIZE, json=body).json() == {"prompt": text}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "missing_parameter", "tokens")),
        ({"tokens": [5, -1]}, (400, "invalid_parameter", "tokens[1]")),
        ({"tokens": [5, 256]}, (400, "invalid_parameter", "tokens[1]")),
        ({"tokens": "x"}, (400, "invalid_parameter", "tokens")),
        ({"tokens": [5] * 129}, (400, "invalid_parameter", "tokens")),
        ({"tokens": [5], "model": "nope"}, (404, "model_not_found", "model")),
    ],
)
def test_what_cannot_be_detokenized(idle, body, expected):
    assert error_of(idle.post(DETOKENIZE, json=body)) == expected


@pytest.mark.parametrize(
    ("limit", "max_tokens", "limited_by"),
    [
        ({}, 50, ["default_max_tokens"]),
        ({"max_tokens": 5}, 5, ["max_tokens"]),
        ({"max_completion_tokens": 5}, 5, ["max_completion_tokens"]),
        ({"max_tokens": 108}, 108, ["max_tokens", "context_length"]),
    ],
)
def test_a_rendered_chat(idle, limit, max_tokens, limited_by):
    answer = idle.post(RENDER, json={**CHAT, **limit}).json()
    assert answer.pop("id").startswith("chatcmpl-")
    assert answer == {
        "object": "chat.completion.render",
        "model": "demo",
        "prompt": RENDERED,
        "prompt_token_ids": [*RENDERED.encode()],
        "prompt_tokens": 20,
        "context_length": 128,
        "max_tokens": max_tokens,
        "limited_by": limited_by,
    }


def test_a_long_chat_is_limited_by_the_context(idle):
    body = {**CHAT, "messages": [{"role": "user", "content": "x" * 100}]}
    answer = idle.post(RENDER, json=body).json()
    assert (answer["max_tokens"], answer["limited_by"]) == (10, ["context_length"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({**CHAT, "nope": 1}, (400, "unsupported_parameter", "nope")),
        (
            {**CHAT, "max_completion_tokens": 127},
            (400, "context_length_exceeded", "max_completion_tokens"),
        ),
        (
            {**CHAT, "messages": [{"role": "user", "content": "x" * 200}]},
            (400, "context_length_exceeded", "messages"),
        ),
    ],
)
def test_render_refuses_what_a_generation_would(idle, body, expected):
    assert error_of(idle.post(RENDER, json=body)) == expected


def test_dynamos_list_of_models(idle):
    answer = idle.get("/dynamo/alpha/list-models").json()
    assert answer == {"chat_completion_models": ["demo"], "completion_models": ["demo"]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TOKENIZE, {"prompt": "x"}),
        (DETOKENIZE, {"tokens": [1]}),
        (RENDER, CHAT),
        *((path, {"messages": MESSAGES}) for path in ("/chat/json", "/chat/stream", "/chat/sse")),
    ],
)
def test_while_triton_is_away(serve, path, body):
    client = serve(ScriptedEngine(), FixedCatalog("Triton is away"))
    assert error_of(client.post(path, json=body)) == (503, "model_unavailable", None)
