"""Records what the clients send, as fixtures of tests/compat: `python -m tests.long.agents.record`.

Of each client the first request, the last one of its work, and the last one after it has resumed.
Long texts are cut: only the shape counts, and the words are their authors'.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.long.agents.clients import CLIENTS, Aider, Client, MiniSweAgent
from tests.long.agents.playing_engine import playing, task
from tests.long.agents.test_agents import steps_of

RECORDED = Path(__file__).parents[2] / "compat" / "agents.json"
LONGEST = 60  # characters of a text
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{24,}|\b\d{4}-\d\d-\d\dT[\d:.]+Z?")


class Shaper:
    """Leaves out paths of this machine and most of each text, and numbers ids."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.ids: dict[str, str] = {}

    def shape(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.shape(name): self.shape(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.shape(one) for one in value]
        if not isinstance(value, str):
            return value
        text = ID.sub(self._number, value.replace(self.home, "/home/user"))
        if len(text) <= LONGEST:
            return text
        try:
            return json.dumps(self.shape(json.loads(text)))  # JSON within a text stays JSON
        except ValueError:
            return f"{text[: LONGEST - 2]} …"

    def _number(self, found: re.Match[str]) -> str:
        return self.ids.setdefault(found[0], f"{len(self.ids)}")


def recorded(kind: type[Client]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, playing() as (url, sent):
        client = kind(Path(folder) / "home", url)
        if kind is Aider:
            client.run(task("made.txt\n```\nhello\n```\n"))
        else:
            end = [client.calls_shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")]
            client.run(task(*steps_of(client), end if kind is MiniSweAgent else "It is done."))
        chosen = {0: sent[0], len(sent) - 1: sent[-1]}
        if kind is not MiniSweAgent:
            client.run(task("It is resumed."), resumes=True)
            chosen[len(sent) - 1] = sent[-1]
        shaper = Shaper(folder)
        return [
            {
                "path": one["path"] + (f"?{one['query']}" if one["query"] else ""),
                "body": shaper.shape(json.loads(one["body"])),
            }
            for one in chosen.values()
        ]


if __name__ == "__main__":
    found = {kind.name: recorded(kind) for kind in CLIENTS}
    written = (
        f" {json.dumps(name)}: [\n"
        + ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in requests)
        + "\n ]"
        for name, requests in found.items()
    )
    RECORDED.write_text("{\n" + ",\n".join(written) + "\n}\n")
