"""Requests of real agents get answers (`python -m tests.long.agents.record` writes agents.json)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.long.agents.playing_engine import TEMPLATE

RECORDED = json.loads((Path(__file__).parent / "agents.json").read_text())
EACH = [(name, at) for name, requests in RECORDED.items() for at in range(len(requests))]
DROPPED = {"codex": "web_search"}


@pytest.fixture(scope="module")
def agents_proxy():
    facts = replace(FACTS, context_length=1_000_000, chat_template=TEMPLATE)
    engine = ScriptedEngine(deltas("It is done."))
    with TestClient(application(engine, FixedCatalog(facts=facts))) as client:
        yield client, engine


@pytest.mark.parametrize(("name", "at"), EACH)
def test_what_an_agent_sends_is_answered(agents_proxy, name, at):
    (client, engine), request = agents_proxy, RECORDED[name][at]
    response = client.post(request["path"], json=request["body"])
    assert response.status_code == 200, response.text
    assert '"error":{' not in response.text
    assert response.headers.get("x-dropped-tools") == DROPPED.get(name)
    prompt = engine.requests[-1].text
    assert "DeferredToolPlaceholder" not in prompt
    for tool in _functions(request["body"]):
        assert tool in prompt


def _functions(body: dict[str, Any]) -> list[str]:
    """The names that the model must see."""
    found = []
    for tool in body.get("tools") or ():
        inner = tool.get("tools") or (() if tool.get("type") == "web_search" else (tool,))
        names = (one.get("name") or one["function"]["name"] for one in inner)
        space = f"{tool['name']}__" if tool.get("type") == "namespace" else ""
        found += [f"{space}{name}" for name in names if name != "DeferredToolPlaceholder"]
    return found
