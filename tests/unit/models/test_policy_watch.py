"""policy_watch: a changed models.yaml comes into force; an invalid one changes nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from build_engines.models_file import ModelsFile
from proxy import background
from proxy.domain.model import LoadedModel
from proxy.models import policy
from proxy.models.policy_watch import PolicyWatch, needing_build
from proxy.models.registry import Registry
from proxy.server_tools.http_tools import HeaderSecrets, HttpToolRunner
from proxy.settings import Settings
from tests.doubles.engine import FACTS

pytestmark = pytest.mark.anyio

FIRST = "models: {m: {weights: w, aliases: [a]}}"
SECOND = "models: {m: {weights: w, aliases: [b], tool_parser: hermes}}"
TOOL = "{url: 'https://x.example', headers: {Authorization: '${NO_SUCH}'}}"
OLD_CAPABILITIES = frozenset({"temperature"})


class Value:
    """A gauge."""

    def set(self, value: float) -> None:
        self.value = value


class Tools(HttpToolRunner):
    """heard: an entry for each new file."""

    def __init__(self) -> None:
        super().__init__(HeaderSecrets({}))
        self.heard: asyncio.Queue[bool] = asyncio.Queue()

    def replace_secrets(self, secrets: HeaderSecrets) -> None:
        self.heard.put_nowait(True)


class Served:
    """A models file, the registry that it fills, and the watch over it."""

    def __init__(self, path: Path, *, loaded: LoadedModel | None = None) -> None:
        self.path = path
        path.write_text(FIRST)
        settings = Settings(models_file=path)
        found = policy.models(settings)
        self.registry, self.valid = Registry(found.models), Value()
        self.registry.serve([loaded or LoadedModel(name="m", facts=FACTS)])
        self.tools = Tools()
        self.heard = self.tools.heard
        self.watch = PolicyWatch(
            settings,
            found,
            self.registry,
            self.tools,
            self.valid,
        )

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.registry.model("m").names[1:]


@pytest.fixture
def served(tmp_path) -> Served:
    return Served(tmp_path / "models.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: {m: {weights: w,", "is not valid YAML"),
        ("models:\n  m:\n    weights: w\n    tool_parser: ni", ":2: models.m: "),
        (
            f"models:\n  m:\n    weights: w\n    server_tools:\n      t: {TOOL}",
            ":5: models.m.server_tools.t.headers: the environment variable NO_SUCH is not set",
        ),
    ],
)
async def test_an_invalid_file_is_rejected_as_a_whole_with_file_and_line(served, text, said):
    served.path.write_text(text)
    with capture_logs() as logs:
        assert not await served.watch.reload()
    (line,) = logs
    assert (line["log_level"], line["event"]) == ("error", "models file rejected")
    assert f"{served.path}" in line["reason"]
    assert said in line["reason"]
    assert (served.aliases, served.valid.value, served.heard.empty()) == (("a",), 0, True)
    [concern] = served.watch.concerns
    assert (concern.is_fatal, str(served.path) in concern.message) == (False, False)
    served.path.write_text(SECOND)
    assert await served.watch.reload()
    assert (served.valid.value, served.watch.concerns) == (1, ())


async def test_a_file_with_limits_that_cannot_be_enforced_is_rejected(tmp_path):
    old = LoadedModel(name="m", facts=FACTS, capabilities=OLD_CAPABILITIES)
    served = Served(tmp_path / "models.yaml", loaded=old)
    served.path.write_text("models: {m: {weights: w, aliases: [b], limits: {max_tokens: 9}}}")
    assert not await served.watch.reload()
    assert (served.aliases, served.valid.value) == (("a",), 0)


async def test_a_change_is_noticed_and_a_request_reads_the_file_at_once(served):
    other = served.path.with_suffix(".new")
    other.write_text(SECOND)
    os.replace(other, served.path)  # also a change from before the watch runs
    watching = asyncio.create_task(served.watch.run(poll_s=0.01))
    assert await asyncio.wait_for(served.heard.get(), 30)
    served.watch.read_again()
    assert await asyncio.wait_for(served.heard.get(), 30)
    await background.end([watching])
    assert served.aliases == ("b",)
    assert served.heard.empty(), "an unchanged file is not read"


def test_models_that_must_be_built_again_are_named():
    def models(**fields):
        entries = {"m": {"weights": "w", **fields}, "far": {"runtime": "remote"}}
        return ModelsFile.model_validate({"models": entries}).models

    before = models()
    assert needing_build(before, models(aliases=["x"], max_retries=1)) == []
    assert needing_build(before, models(onnx={"threads": 2})) == ["m"]
    assert needing_build(before, models(sampling={"max_tokens": 9})) == ["m"]
    assert needing_build({}, before) == ["m"]
