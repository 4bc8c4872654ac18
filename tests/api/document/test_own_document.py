"""Requests made from our own OpenAPI document: what it allows is served, the rest refused."""

from __future__ import annotations

import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.api.answers.test_parameters import logged
from tests.api.document.test_document import CATALOG
from tests.doubles.engine import ScriptedEngine
from tests.fixtures.own_document import OwnDocument, every_case, without_keys

BODIES = {
    "/v1/chat/completions": "ChatCompletionBody",
    "/v1/chat/completions/render": "ChatCompletionBody",
    "/v1/completions": "CompletionBody",
    "/v1/messages": "MessagesBody",
    "/v1/messages/count_tokens": "CountTokensBody",
    "/chat/json": "PlainChatBody",
    "/chat/stream": "PlainChatBody",
    "/chat/sse": "PlainChatBody",
    "/tokenize": "TokenizeBody",
    "/detokenize": "DetokenizeBody",
}
EXAMPLES = 10
# Refusals of bodies that follow the schema, which can say none of these.
CODES = {
    "unsupported_parameter": "this model has no such ability",
    "context_length_exceeded": "tokens are counted",
    "invalid_schema": "a schema or grammar in the body is itself wrong",
    "invalid_messages": "tool results follow their calls, by id",
}
MESSAGES = {
    "more than the limit of": "two numbers are compared",
    "less than 'n'": "two numbers are compared",
    "cannot be streamed": "two numbers are compared",
    "is not one of 'tools'": "two lists are compared",
    "the name of an earlier tool": "values of a list are compared",
    "needs a message of the assistant at the end": "the last value of a list is looked at",
    "outside the vocabulary": "the keys of 'logit_bias' are numbers",
    "bytes are allowed": "bytes are added up",
    # rules between fields, see FORBIDDEN
    "is only allowed w": "a field needs another one",
    "exclude each other": "a field excludes another one",
    "both set the format of the answer": "a field excludes another one",
    "give one of them": "a field of 'nvext' repeats one of the body",
    "are the same": "two names of one field",
    "are only sent in a stream": "a field needs another one",
    "it adds no spaces": "a field needs another one",
    "is for the chat template": "a field excludes another one",
    "needs exactly one message": "messages are counted",
    "needs a prompt that is text": "a field depends on the form of another one",
    "is only for chats": "both bodies have one 'nvext'",
    # of Anthropic's API, whose errors have no code
    "is not supported by": "this model or server has no such ability",
    "does not support this": "this model has no such ability",
    "this server does only": "the schema says what is supported",
    "prompt is too long": "tokens are counted",
    "exceed context limit": "tokens are counted",
    "Invalid schema": "a schema in the body is itself wrong",
    "`tool_": "tool results follow their calls, by id",
    "has no message of role 'user'": "turns are counted",
    "budget_tokens": "its presence depends on the type",
    "is not base64": "an image is decoded",
    "by its first bytes": "an image is decoded",
    "are asked for": "prompts times choices, and elements of nested lists, are counted",
}


def is_unsayable(error: dict[str, str]) -> bool:
    return error.get("code") in CODES or any(words in error["message"] for words in MESSAGES)


@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", BODIES)
def test_every_check_of_schemathesis_passes(serve, path, mode):
    load_all_checks()
    client = serve(ScriptedEngine(logged("ab")), CATALOG)
    own = OwnDocument.of(client, __name__)
    served = []
    loaded = schemathesis.openapi.from_dict(without_keys(own.document))
    loaded.app, loaded.location = client.app, "/openapi.json"
    operation = loaded[path]["POST"]

    def holds(case) -> None:
        if mode is GenerationMode.POSITIVE:
            case.body["model"] = "demo"
        response = case.call()
        case.validate_response(response, excluded_checks=[positive_data_acceptance])
        served.append(response.status_code)
        if mode is GenerationMode.POSITIVE and response.status_code != 200:
            error = response.json()["error"]
            assert is_unsayable(error), error

    every_case(operation.as_strategy(generation_mode=mode), EXAMPLES, holds)
    expected = {200} if mode is GenerationMode.POSITIVE else {400, 404}
    assert expected.intersection(served)


HI = [{"role": "user", "content": "hi"}]


FORBIDDEN = [
    ("/v1/chat/completions", {"stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"truncation_side": "left"}),
    ("/v1/chat/completions", {"top_logprobs": 1}),
    ("/v1/chat/completions", {"max_tokens": 1, "max_completion_tokens": 2}),
    ("/v1/chat/completions", {"nvext": {"annotations": ["timing"]}}),
    (
        "/v1/chat/completions",
        {"spaces_between_special_tokens": True, "skip_special_tokens": False},
    ),
    ("/v1/chat/completions", {"regex": "a", "ebnf": 'root ::= "a"'}),
    ("/v1/chat/completions", {"regex": "a", "response_format": {"type": "json_object"}}),
    ("/v1/chat/completions", {"regex": "a", "nvext": {"guided_regex": "b"}}),
    ("/v1/chat/completions", {"structured_outputs": {"regex": "a", "grammar": "b"}}),
    ("/v1/chat/completions", {"nvext": {"guided_regex": "a", "guided_grammar": "b"}}),
    ("/v1/chat/completions", {"top_k": 1, "nvext": {"top_k": 2}}),
    ("/v1/chat/completions", {"continue_final_message": True, "add_generation_prompt": True}),
    ("/v1/chat/completions", {"prompt_token_ids": [1], "verbosity": "low"}),
    ("/v1/chat/completions", {"nvext": {"token_data": [1]}, "tools": []}),
    ("/v1/chat/completions", {"nvext": {"use_raw_prompt": True}, "messages": HI * 2}),
    ("/v1/chat/completions", {"thinking_token_budget": 1, "truncate_prompt_tokens": 2}),
    ("/v1/completions", {"max_tokens": 0}),
    ("/v1/completions", {"suffix": "a", "prompt": [1]}),
    ("/v1/completions", {"suffix": "a", "echo": True}),
    ("/v1/completions", {"echo": True, "regex": "a"}),
    ("/v1/completions", {"nvext": {"max_thinking_tokens": 1}}),
    ("/v1/completions", {"nvext": {"token_data": [1]}, "prompt": [2]}),
    ("/tokenize", {"prompt": "a", "tools": []}),
]


def test_the_server_has_rules_between_fields_that_no_schema_says(serve):
    client = serve(ScriptedEngine(logged("ab")), CATALOG)
    for path, fields in FORBIDDEN:
        base = {"prompt": "hi"} if path == "/v1/completions" else {"messages": HI}
        body = {**fields} if path == "/tokenize" else {"model": "demo", **base, **fields}
        answer = client.post(path, json=body)
        assert answer.status_code == 400, fields
        assert is_unsayable(answer.json()["error"]), fields
