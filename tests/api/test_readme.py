"""README's table of parameters is that of the code: each field and its fate."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from tests.doubles.engine import ScriptedEngine, deltas
from triton_openai.proxy.api.openai.requests.bodies import (
    ChatCompletionBody,
    CompletionBody,
    StreamOptions,
)
from triton_openai.proxy.api.openai.requests.limits import Limits
from triton_openai.proxy.api.openai.requests.nvext import AnnotationName, ExtraField, NvExt
from triton_openai.proxy.settings import Settings

README = (Path(__file__).parents[2] / "README.md").read_text()
DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `(\w+)` \| (chat|completions|both) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(README)
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
    told = names(endpoint, refused=False)
    assert len(told) == len(set(told))
    assert set(told) == set(body.model_fields)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_what_the_table_calls_refused_is(serve, endpoint):
    path, _, good = ENDPOINTS[endpoint]
    client = serve(ScriptedEngine(deltas("a")))
    for name in names(endpoint, refused=True):
        response = client.post(path, json={"model": "demo", **good, name: 1})
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "unsupported_parameter"), name
        assert error["param"] == name


def test_stream_options_are_told():
    (told,) = (fate for name, _, fate in ROWS if name == "stream_options")
    assert set(re.findall(r"`(\w+)`:", told)) == set(StreamOptions.model_fields)


def test_nvext_is_told_field_by_field():
    told = (DOCS / "nvext.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE)
    known = [*NvExt.model_fields, *get_args(AnnotationName), *get_args(ExtraField)]
    assert sorted(rows) == sorted(known)


def test_every_limit_on_a_request_is_told():
    limits = [one.name for one in fields(Limits) if one.name != "schemas"] + ["json_depth"]
    assert [name for name in limits if f"`MAX_{name.upper()}`" not in README] == []
    assert all(f"max_{name}" in Settings.model_fields for name in limits)
