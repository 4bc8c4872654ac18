"""The table of parameters in docs/api.md is the code's: each field, and what happens to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.generation_body import StreamOptions
from proxy.api.openai.nvext import AnnotationName, ExtraField, NvExt
from tests.doubles.engine import ScriptedEngine, deltas

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "api.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (chat|completions|both) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(API)
ENDPOINTS = {
    "chat": (
        "/v1/chat/completions",
        ChatCompletionBody,
        {"messages": [{"role": "user", "content": "x"}]},
    ),
    "completions": ("/v1/completions", CompletionBody, {"prompt": "x"}),
}


def names(endpoint: str, *, refused: bool) -> list[str]:
    return [
        name
        for name, of, fate in ROWS
        if of in (endpoint, "both") and bool(re.match("refused(:|$)", fate)) is refused
    ]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_field_of_a_body_has_a_row_and_every_row_a_field(endpoint):
    _, body, _ = ENDPOINTS[endpoint]
    documented = names(endpoint, refused=False)
    assert len(documented) == len(set(documented))
    assert set(documented) == set(body.model_fields)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_what_the_table_calls_refused_is(serve, endpoint):
    path, _, good = ENDPOINTS[endpoint]
    client = serve(ScriptedEngine(deltas("a")))
    for name in names(endpoint, refused=True):
        response = client.post(path, json={"model": "demo", **good, name: 1})
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "unsupported_parameter"), name
        assert error["param"] == name


def test_each_stream_option_is_documented():
    (documented,) = (fate for name, _, fate in ROWS if name == "stream_options")
    assert set(re.findall(r"`(\w+)`:", documented)) == set(StreamOptions.model_fields)


def test_each_field_of_nvext_is_documented():
    documented = API.partition("## nvext\n")[2].partition("## Errors\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|", documented, re.MULTILINE)
    known = [*NvExt.model_fields, *get_args(AnnotationName), *get_args(ExtraField)]
    assert sorted(rows) == sorted(known)
