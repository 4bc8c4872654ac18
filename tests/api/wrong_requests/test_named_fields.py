"""A refusal names fields of the route that was asked, also where it is raised behind the routes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from proxy.api.http.validation_errors import QUOTED
from proxy.api.plain.plain_chat import PlainChatBody
from proxy.api.tokens.token_bodies import TokenizeBody
from tests.api.tools.test_tools import CATALOG
from tests.api.wrong_requests.test_attacks import BODIES, CHAT, GOOD
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

ROUTES = BODIES | {
    "/v1/responses/input_tokens": BODIES["/v1/responses"],
    "/v1/chat/completions/render": BODIES[CHAT],
    "/tokenize": (TokenizeBody, GOOD),
    "/chat/json": (PlainChatBody, GOOD),
}
FIELDS = {field for kind, _ in ROUTES.values() for field in kind.model_fields}
ECHOED = re.compile(r"\(given: .*|Input should be .*|the model '.*?'", re.IGNORECASE)
PATTERN = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
IMAGE = "data:image/png;base64,aGVsbG8="
VALUES = [
    *(0, 5, 10**9, 0.5, "x", "x" * 500, "none", "high", "any", "required", True, [], ["x"]),
    *([1], [10**6], {}, {"1": 1}, {"type": "any"}, {"type": "tool", "name": "g"}),
    *({"effort": "none"}, {"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}),
    {"type": "json_schema", "json_schema": {"name": "a", "schema": PATTERN}},
    {"format": {"type": "json_schema", "name": "a", "schema": PATTERN}},
    {"format": {"type": "json_schema", "schema": PATTERN}},
    [{"type": "function", "function": {"name": "f", "parameters": PATTERN}}],
    [{"type": "function", "name": "f", "parameters": PATTERN}],
    [{"name": "f", "input_schema": PATTERN}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]}],
    [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}],
    {"token_data": [1]},
]
MODELS = {
    "with nothing": (FixedCatalog(capabilities=frozenset()), {}),
    "without a template": (FixedCatalog(facts=replace(FACTS, chat_template=None)), {}),
    "with limits": (
        FixedCatalog(facts=replace(FACTS, context_length=8)),
        {"max_output_tokens": 3, "max_prompt_tokens": 6, "max_choices": 1},
    ),
}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("model", MODELS)
def test_whatever_a_field_holds_its_refusal_names_fields_of_the_same_body(serve, model, path):
    catalog, settings = MODELS[model]
    kind, body = ROUTES[path]
    fields = kind.model_fields.keys() | {one.alias for one in kind.model_fields.values()}
    client = serve(ScriptedEngine(deltas("hi")), catalog, **settings)
    refusals = 0
    for name in sorted(kind.model_fields.keys() - {"stream", "background"}):
        for value in VALUES:
            response = client.post(path, json=body | {name: value})
            if response.status_code != 400:
                continue
            refusals += 1
            error = response.json()["error"]
            quoted = {*QUOTED.findall(ECHOED.sub("", error["message"]))} - {"user", "text"}
            assert quoted & FIELDS <= fields, (name, value, error)
            if (param := error.get("param")) is not None:
                assert re.match(r"\w+", param)[0] in fields, (name, value, error)
    assert refusals


WEATHER = {
    CHAT: ("tools[1].function.name", {"type": "function", "function": {"name": "weather"}}),
    "/v1/responses": ("tools[1].name", {"type": "function", "name": "weather"}),
    "/v1/messages": ("tools[1].name", {"name": "weather", "input_schema": {"type": "object"}}),
}


@pytest.mark.parametrize("path", WEATHER)
def test_a_tool_of_the_servers_name_is_refused_where_the_caller_wrote_it(serve, policy, path):
    named, tool = WEATHER[path]
    other = {key: {"name": "f"} if key == "function" else one for key, one in tool.items()}
    other |= {"name": "f"} if "name" in tool else {}
    client = serve(ScriptedEngine(), CATALOG, models_file=policy())
    body = BODIES[path][1] | {"tools": [other, tool]}
    message = client.post(path, json=body).json()["error"]["message"]
    assert message.startswith(f"'{named}' is 'weather', as a tool's of this server is")
    assert {*QUOTED.findall(message)} == {"weather"}
