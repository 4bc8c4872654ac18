"""deployments and pools of models.yaml: what is read, and what is refused, with its line."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

from build_engines.build import build_all, needing_tools, show_all
from build_engines.models_file import (
    ModelsFile,
    ModelsFileError,
    OnnxEntry,
    RemoteEntry,
    load,
)

FILE = """\
pools:
  east: {endpoints: "dns+grpc://triton-east:8001", routing: least_outstanding}
  west:
    endpoints: [grpcs://w1:8001, "grpcs://w2:8001?metrics=9002"]
    ca_file: west.pem
    secret_env: WEST_SECRET
models:
  chat:
    deployments:
      - {name: blue, pool: east, model: chat-v1, version: 2, weight: 3}
      - {name: green, pool: west, model: chat-v2}
      - name: trial
        canary: {percent: 5, tenants: [team-*], header: {name: X-Trial, value: "yes"}}
    sticky: user
    shadow: {deployment: green, percent: 10}
    deprecated: 2026-01-31
    sunset: 2026-07-31
    fallback: small
  small: {runtime: remote}
  old: {weights: w, fallback: chat}
"""


def read(folder: Path, text: str = FILE) -> ModelsFile:
    (folder / "models.yaml").write_text(text)
    return load(folder / "models.yaml")


def refused(folder: Path, old: str, new: str) -> str:
    assert FILE.count(old) == 1
    with pytest.raises(ModelsFileError) as error:
        read(folder, FILE.replace(old, new))
    return str(error.value).removeprefix(f"{folder}/")


def test_a_model_is_read_with_its_deployments(tmp_path):
    entry = read(tmp_path).models["chat"]
    assert isinstance(entry, RemoteEntry), "deployments without weights"
    blue, green, trial = entry.deployments
    assert (blue.pool, blue.model, blue.version, blue.share_weight) == ("east", "chat-v1", 2, 3)
    assert (green.version, green.share_weight) == (None, 1)
    assert (trial.pool, trial.model, trial.share_weight) == ("default", None, 0)
    assert (trial.canary.percent, trial.canary.header.name) == (5, "x-trial")
    assert (entry.shadow.deployment, entry.shadow.percent) == ("green", 10)
    assert (entry.deprecated, entry.sunset) == (date(2026, 1, 31), date(2026, 7, 31))


def test_a_pool_is_read_with_its_source(tmp_path):
    pools = read(tmp_path).pools
    assert pools["east"].endpoints == "dns+grpc://triton-east:8001"
    assert pools["west"].endpoints == "grpcs://w1:8001,grpcs://w2:8001?metrics=9002"
    assert pools["west"].ca_file == tmp_path / "west.pem"
    assert (pools["west"].metrics_port, pools["west"].routing) == (8002, "prefix")


def test_a_model_with_weights_may_have_deployments_too(tmp_path):
    text = "models: {m: {weights: w, deployments: [{name: a}, {name: b, weight: 0}]}}"
    assert isinstance(read(tmp_path, text).models["m"], OnnxEntry)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pool: east", "pool: eest", "10: models.chat.deployments.0.pool: unknown pool 'eest'"),
        ("name: green", "name: blue", "11: models.chat.deployments.1.name: 'blue' names another"),
        ("weight: 3", "weight: -1", "10: models.chat.deployments.0.weight: Input should be"),
        ("weight: 3", "wait: 3", "10: models.chat.deployments.0.wait: unknown key: did you mean"),
        ("version: 2", "version: 0", "10: models.chat.deployments.0.version: Input should be"),
        ("percent: 5", "percent: 101", "13: models.chat.deployments.2.canary.percent: Input"),
        ("X-Trial", "Authorization", "13: models.chat.deployments.2.canary.header.name: 'Auth"),
        (
            "name: trial",
            "name: trial\n        weight: 1",
            "13: models.chat.deployments.2.weight: a",
        ),
        ("sticky: user", "sticky: tenant", "14: models.chat.sticky: Input should be 'none'"),
        ("deployment: green", "deployment: grün", "15: models.chat.shadow.deployment: String"),
        ("deployment: green", "deployment: red", "15: models.chat.shadow.deployment: unknown dep"),
        ("2026-01-31", "2026-08-01", "17: models.chat.sunset: 2026-07-31 is before the date"),
        ("2026-01-31", "soon", "16: models.chat.deprecated: Input should be a valid date"),
        ("fallback: small", "fallback: tiny", "18: models.chat.fallback: unknown model 'tiny'"),
        ("fallback: small", "fallback: chat", "18: models.chat.fallback: the fallbacks run in a"),
        ("fallback: small", "fallback: old", "18: models.chat.fallback: the fallbacks run in a c"),
        ("dns+grpc://", "http://", "2: pools.east.endpoints: 'http://triton-east:8001' is not a"),
        ("[grpcs://w1:8001, ", "[grpc://w1:8001, ", "4: pools.west.endpoints: 'grpc://w1:8001,gr"),
        ("[grpcs://w1:8001, ", "[w1:8001, ", "4: pools.west.endpoints: 'w1:8001' is not an add"),
        ("routing: least_", "routing: most_", "2: pools.east.routing: Input should be 'prefix'"),
        ("WEST_SECRET", "west-secret", "6: pools.west.secret_env: String should match pattern"),
        ("{runtime: remote}", "{runtime: remote, weights: w}", "19: models.small.weights: unknown"),
        (
            "{runtime: remote}",
            "{runtime: remote, sampling: {max_tokens: 9}}",
            "19: models.small.sampling.max_tokens: `build` writes it where the model is built",
        ),
    ],
)
def test_an_error_names_its_line(tmp_path, old, new, said):
    assert refused(tmp_path, old, new).startswith(f"models.yaml:{said}")


@pytest.mark.parametrize(
    ("deployments", "said"),
    [
        ("[{name: a, weight: 0}]", "the weights add up to 0, so 100 % of the requests"),
        ("[{name: a, standby: true}]", "the weights add up to 0, so 100 % of the requests"),
        ("[{name: a}, {name: b, standby: true, weight: 2}]", "a standby has no weight and no"),
        (
            "[{name: a, canary: {percent: 30}}, {name: b, weight: 0}]",
            "the weights add up to 0, so 70 % of the requests have no place",
        ),
        (
            "[{name: a, canary: {percent: 60}}, {name: b, canary: {percent: 60}}]",
            "the percentages of the canaries add up to 120, over 100",
        ),
        ("[{name: a}], shadow: {deployment: a}", "'a' would be a shadow of itself"),
    ],
)
def test_requests_without_a_place_are_refused(tmp_path, deployments, said):
    with pytest.raises(ModelsFileError, match=said):
        read(tmp_path, f"models: {{m: {{deployments: {deployments}}}}}")


def test_a_chain_of_fallbacks_has_a_bound(tmp_path):
    names = [f"m{number}" for number in range(7)]
    lines = [f"  {a}: {{runtime: remote, fallback: {b}}}\n" for a, b in pairwise(names)]
    text = "models:\n" + "".join(lines[1:]) + "  m6: {runtime: remote}\n"
    with pytest.raises(ModelsFileError, match=r"2: models\.m1\.fallback: the chain m1 -> m2 -> m3"):
        read(tmp_path, text)
    short = "models:\n" + "".join(lines[2:]) + "  m6: {runtime: remote}\n"
    assert read(tmp_path, short).models["m2"].fallback == "m3"


def test_build_says_that_a_remote_model_has_nothing_to_build(tmp_path):
    said = list[str]()
    found = read(tmp_path, "models: {m: {runtime: remote}}")
    build_all(found, tmp_path / "artifacts", say=said.append)
    show_all(found, tmp_path / "artifacts", only=["m"], say=said.append)
    line = "m: runtime remote, nothing to build: Triton servers of its pools have it"
    assert said == [line, f"# {line}"]
    assert needing_tools(found, tmp_path / "artifacts") == []
