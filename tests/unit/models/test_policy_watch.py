"""policy_watch: what is rejected as a whole, and what only a new build brings into force."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge
from structlog.testing import capture_logs

from build_engines.models_file import ModelsFile
from proxy.domain.model import LoadedModel
from proxy.models import policy
from proxy.models.policy_watch import PolicyWatch, needing_build
from proxy.models.registry import Registry
from proxy.server_tools.http_tools import HeaderSecrets, HttpToolRunner
from proxy.settings import Settings
from tests.doubles.engine import FACTS

TOOL = "{url: 'https://x.example', headers: {Authorization: '${NO_SUCH}'}}"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models:\n  m:\n    weights: w\n    tool_parser: ni", "models.yaml:2: models.m: "),
        (
            f"models:\n  m:\n    weights: w\n    server_tools:\n      t: {TOOL}",
            ":5: models.m.server_tools.t.headers: the environment variable NO_SUCH is not set",
        ),
        ("models: {m: {weights: w, aliases: [b], limits: {max_tokens: 9}}}", "max_tokens"),
    ],
)
async def test_an_invalid_file_is_rejected_as_a_whole_with_file_and_line(tmp_path, text, said):
    path = tmp_path / "models.yaml"
    path.write_text("models: {m: {weights: w, aliases: [a]}}")
    settings = Settings(models_file=path)
    found = policy.models(settings)
    registry = Registry(found.models)
    cannot_limit = frozenset({"temperature"})
    registry.serve([LoadedModel(name="m", facts=FACTS, capabilities=cannot_limit)])
    valid = Gauge("valid", "valid", registry=CollectorRegistry())
    tools = HttpToolRunner(HeaderSecrets({}))
    watch = PolicyWatch(settings, found, registry, tools, valid)
    path.write_text(text)
    with capture_logs() as logs:
        assert not await watch.reload()
    assert said in logs[-1]["reason"]
    assert (registry.model("m").names[1:], valid.collect()[0].samples[0].value) == (("a",), 0)
    [concern] = watch.concerns
    assert (concern.is_fatal, str(path) in concern.message) == (False, False)


def test_models_that_must_be_built_again_are_named():
    def models(**fields):
        entries = {"m": {"weights": "w", **fields}, "far": {"runtime": "remote"}}
        return ModelsFile.model_validate({"models": entries}).models

    before = models()
    assert needing_build(before, models(aliases=["x"], max_retries=1)) == []
    assert needing_build(before, models(onnx={"threads": 2})) == ["m"]
    assert needing_build(before, models(sampling={"max_tokens": 9})) == ["m"]
    assert needing_build({}, before) == ["m"]
