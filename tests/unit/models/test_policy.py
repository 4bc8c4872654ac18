"""models.yaml: defaults, server tools, what is rejected as a whole, and what a new build needs."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, Gauge
from structlog.testing import capture_logs

from build_engines.models_file import ModelsFile, ModelsFileError
from proxy.domain.model import LoadedModel
from proxy.models import policy
from proxy.models.policy_watch import PolicyWatch, needing_build
from proxy.models.registry import Registry
from proxy.server_tools.http_tools import HeaderSecrets, HttpToolRunner
from proxy.settings import Settings
from tests.doubles.engine import FACTS, learn
from tests.doubles.pools import AuditInMemory
from tests.fixtures.stack import ROOT

MODELS = """\
models:
  said: {weights: w, sampling: {temperature: 0.5, max_tokens: 7}}
  silent: {weights: w}
"""


def test_defaults_hold_where_models_yaml_says_nothing(tmp_path):
    (tmp_path / "models.yaml").write_text(MODELS)
    settings = Settings(
        models_file=tmp_path / "models.yaml", default_temperature=0, default_max_tokens=99
    )
    models = policy.models(settings).models
    said, silent = models["said"].sampling, models["silent"].sampling
    assert (said.temperature, said.max_tokens) == (0.5, 7)
    assert (silent.temperature, silent.max_tokens) == (0, 99)


PROFILE = """\
models:
  plain: {weights: w, profile: chat}
  own: {weights: w, profile: chat, context_length: 4096, sampling: {top_p: 0.5, max_tokens: 7},
        limits: {n: 2, timeout_s: 5}}
  scripted: {weights: w, profile: chat, runtime: scripted, scripted: {text: a}}
"""


def test_a_profile_gives_what_an_entry_does_not_say(tmp_path):
    (tmp_path / "models.yaml").write_text(PROFILE)
    settings = Settings(models_file=tmp_path / "models.yaml", default_temperature=0)
    plain, own, scripted = policy.models(settings).models.values()
    for entry in (plain, scripted):
        assert (entry.context_length, entry.limits.timeout_s) == (8192, 60)
        assert (entry.sampling.temperature, entry.sampling.max_tokens) == (0.7, 1024)
    assert (own.context_length, own.limits.timeout_s, own.limits.n) == (4096, 5, 2)
    assert (own.sampling.temperature, own.sampling.max_tokens, own.sampling.top_p) == (0.7, 7, 0.5)


def test_one_folder_has_the_defaults_of_the_server_that_it_stands_in_for(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    one = {"model_path": tmp_path, "model_id": "m"}
    for given, temperature, max_tokens in (
        ({}, 0.7, 1024),
        ({"default_temperature": 0, "default_max_tokens": 9}, 0, 9),
    ):
        sampling = policy.models(Settings(**one, **given)).models["m"].sampling
        assert (sampling.temperature, sampling.max_tokens) == (temperature, max_tokens)
    assert Settings(**one).max_request_bytes == 10_000_000
    assert Settings(**one, max_request_size_mb=3).max_request_bytes == 3_000_000
    assert Settings().max_request_bytes == 2_000_000


def test_the_example_of_one_folder_shows_the_values_of_its_variables(monkeypatch):
    text = (ROOT / "docs" / "configuration.md").read_text()
    block = text.partition("## One folder without models.yaml")[2].split("```")[1]
    shown = dict(re.findall(r"([A-Z_]+)=(\S+)", block))
    usual = Settings(model_path=shown["MODEL_PATH"])
    for name, value in shown.items():
        monkeypatch.setenv(name, value)
    given = Settings()
    names = "host port log_level request_timeout_s concurrent_requests max_request_bytes"
    for name in names.split():
        assert getattr(given, name) == getattr(usual, name)
    assert (given.default_temperature, given.default_max_tokens) == (0.7, 1024)
    assert given.model_id == "phi-3.5-mini"


def test_a_models_file_that_is_named_must_be_there(tmp_path):
    settings = Settings(models_file=tmp_path / "modles.yaml")
    assert policy.has_models(settings)
    with pytest.raises(ModelsFileError, match=r"modles\.yaml"):
        policy.models(settings)


TOOL = """\
models:
  demo:
    weights: w
    {model}
    server_tools:
      weather: {{{url}{tool}}}
"""
URL = "url: 'https://tools.example/w', "


def with_tool(tmp_path, tool: str = "method: GET", model: str = "owned_by: us") -> Settings:
    path = tmp_path / "models.yaml"
    url = "" if tool.startswith("url") else URL
    path.write_text(TOOL.format(url=url, tool=tool, model=model))
    return Settings(models_file=path)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("url: 'ftp://tools.example'", "not a URL such as"),
        ("url: 'https://me:pw@tools.example'", "no user"),
        ("url: 'https://{host}/w'", "placeholder"),
        ("method: PUT", "method"),
        ("timeout_s: 0", "timeout_s"),
        ("headers: {Host: x}", "set by the proxy"),
        ("headers: {X: 'a ${'}", "without a variable's name"),
        ('headers: {X: "a\\nb"}', "headers"),
        ("parameters: {type: objekt}", "not a JSON Schema"),
        ("parameters: {properties: {a: {$ref: 'http://127.0.0.1:9/x'}}}", "another document"),
        ("retries: 3", "retries"),
    ],
)
def test_a_wrong_server_tool_stops_the_start(tmp_path, tool, words):
    with pytest.raises(ModelsFileError, match=rf"demo\.server_tools\.weather.*{words}"):
        policy.models(with_tool(tmp_path, tool))


def test_server_tools_need_a_parser(tmp_path):
    with pytest.raises(ModelsFileError, match="tool parser"):
        policy.models(with_tool(tmp_path, model="tool_parser: none"))


def test_secrets_are_those_that_headers_name(tmp_path):
    entries = policy.models(with_tool(tmp_path, "headers: {X: 'k ${KEY}', Y: '${ID}'}")).models
    found = policy.secrets(entries, {"KEY": "abc", "ID": "7", "OTHER": "no"})
    assert found.fill({"X": "k ${KEY}", "Y": "${ID}"}) == {"X": "k abc", "Y": "7"}
    assert "OTHER" not in vars(found)["_values"]


@pytest.mark.parametrize("value", [None, "", "a\nb", "é"])
def test_a_secret_that_no_header_can_have_is_named_and_not_shown(tmp_path, value):
    entries = policy.models(with_tool(tmp_path, "headers: {X: '${KEY}'}")).models
    environment = {} if value is None else {"KEY": value}
    with pytest.raises(ModelsFileError, match="KEY") as raised:
        policy.secrets(entries, environment)
    assert not value or value not in str(raised.value)


SECRET_TOOL = "{url: 'https://x.example', headers: {Authorization: '${NO_SUCH}'}}"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models:\n  m:\n    weights: w\n    tool_parser: ni", "models.yaml:2: models.m: "),
        (
            f"models:\n  m:\n    weights: w\n    server_tools:\n      t: {SECRET_TOOL}",
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
    watch = PolicyWatch(settings, found, registry, tools, valid, learn)
    path.write_text(text)
    with capture_logs() as logs:
        assert not await watch.reload()
    assert said in logs[-1]["reason"]
    assert (registry.model("m").names[1:], valid.collect()[0].samples[0].value) == (("a",), 0)
    [concern] = watch.concerns
    assert (concern.is_fatal, str(path) in concern.message) == (False, False)


@pytest.mark.anyio
async def test_a_reload_is_in_the_audit_log_with_the_names_of_what_changed(tmp_path, monkeypatch):
    path = tmp_path / "models.yaml"
    settings = with_tool(tmp_path, "headers: {X: a-secret}")
    found, audit = policy.models(settings), AuditInMemory()
    tools, valid = HttpToolRunner(HeaderSecrets({})), Gauge("v", "v", registry=CollectorRegistry())
    watch = PolicyWatch(settings, found, Registry(found.models), tools, valid, learn, audit)
    await watch.reload()
    assert audit.entries == [], "nothing has changed"
    changed = with_tool(tmp_path, "headers: {X: a-new-secret}", "aliases: [d]").models_file
    added = "".join(f"  m{number}: {{weights: w}}\n" for number in range(90))
    path.write_text(changed.read_text() + added)
    await watch.reload()
    path.write_text("models: {m1: {weights: w}}")
    await watch.reload()
    (action, name, _, first), (*_, second) = audit.entries
    assert (action, name) == ("models.reload", "models.yaml")
    assert set(first["models"]["demo"]) == {"owned_by", "aliases", "server_tools"}
    assert (first["models"]["m0"], first["more_models"]) == ("added", 41)
    assert second["models"]["demo"] == "removed"
    assert "secret" not in repr(audit.entries)


def test_models_that_must_be_built_again_are_named():
    def models(**fields):
        entries = {"m": {"weights": "w", **fields}, "far": {"runtime": "remote"}}
        return ModelsFile.model_validate({"models": entries}).models

    before = models()
    assert needing_build(before, models(aliases=["x"], max_retries=1)) == []
    assert needing_build(before, models(onnx={"threads": 2})) == ["m"]
    assert needing_build(before, models(sampling={"max_tokens": 9})) == ["m"]
    assert needing_build({}, before) == ["m"]
