"""Real agents do their work unchanged: each, with its defaults, runs tools over a scripted model,
continues with their results, and resumes. Skipped with a sentence where they cannot be installed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.long.agents.clients import (
    CLIENTS,
    Aider,
    Client,
    MiniSweAgent,
    NotInstalled,
    node_packages,
    python_packages,
)
from tests.long.agents.playing_engine import playing, task

TOOLS = [kind for kind in CLIENTS if kind is not Aider]
SECRET = "7391"  # what a command prints, so that only a result can have it


@pytest.fixture
def agent(request, tmp_path):
    """A client, and what its proxy is sent."""
    kind = request.param
    try:
        python_packages() if kind.is_python else node_packages()
    except NotInstalled as why:
        pytest.skip(str(why))
    with playing() as (url, sent):
        yield kind(tmp_path / "home", url), sent


def each(*kinds: type[Client]) -> Any:
    return pytest.mark.parametrize("agent", kinds, indirect=True, ids=lambda kind: kind.name)


def assert_all_answered(sent: list[dict[str, Any]]) -> None:
    assert sent
    for one in sent:
        assert one["status"] == 200, (one["path"], one["answer"][-500:])
        assert b'"error"' not in one["answer"][-500:]


def steps_of(client: Client) -> list[Any]:
    """A call with whose result the model continues, two calls at once, a note over MCP, a patch."""
    shell = client.calls_shell
    steps: list[Any] = [["I look.", shell(f"echo $(({SECRET} - 1)) + 1 > old.txt; echo {SECRET}")]]
    steps.append([shell("echo one > one.txt"), shell("echo two > two.txt")])
    if client.notes is not None:
        steps += [client.before_notes] if client.before_notes else []
        steps.append([[client.notes, {"text": "remember"}]])
    patch = "--- old.txt\n+++ old.txt\n@@ -1 +1 @@\n-7390 + 1\n+patched\n"
    steps.append([shell(f"patch -p0 <<'END'\n{patch}END")])
    return steps


@each(*TOOLS)
def test_an_agent_runs_its_tools_and_resumes(agent):
    client, sent = agent
    end = [client.calls_shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")]
    last = end if isinstance(client, MiniSweAgent) else "All of it is done."
    printed = client.run(task(*steps_of(client), last))
    assert_all_answered(sent)
    files = {name: (client.work / name).read_text() for name in ("one.txt", "two.txt", "old.txt")}
    assert files == {"one.txt": "one\n", "two.txt": "two\n", "old.txt": "patched\n"}
    assert any(f"{SECRET}" in one["body"].decode() for one in sent)
    if client.notes is not None:
        assert client.note.read_text() == "remember"
        assert "noted: remember" in sent[-1]["body"].decode()
    if isinstance(client, MiniSweAgent):
        return
    assert "All of it is done." in printed
    before = len(sent)
    assert "It is resumed." in client.run(task("It is resumed."), resumes=True)
    assert_all_answered(sent)
    resumed = max((one["body"].decode() for one in sent[before:]), key=len)
    assert SECRET in resumed


@each(Aider)
def test_aider_writes_the_files_that_the_model_writes(agent):
    client, sent = agent
    client.run(task("made.txt\n```\nhello\n```\n"))
    assert (client.work / "made.txt").read_text() == "hello\n"
    assert_all_answered(sent)


@each(CLIENTS[0])
def test_codex_is_told_which_of_its_tools_no_model_can_call(agent):
    client, sent = agent
    client.run(task("Hi."))
    (only,) = sent
    assert only["told"]["x-dropped-tools"] == "web_search"
    names = [tool["type"] for tool in json.loads(only["body"])["tools"]]
    assert "namespace" in names
