"""Every models.yaml that is deployed, or shown in the documents, is one that the reader takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build_engines import models_file
from proxy.operate.triton_server.ranks import World
from tests.deploy.places import DOCKER, ROOT

DEPLOYED = sorted(DOCKER.rglob("models.yaml"))
COMPOSED = sorted(
    (DOCKER / path).resolve()
    for compose in DOCKER.glob("compose*.yaml")
    for path in set(re.findall(r"\$\{MODELS_FILE:-([^}]+)\}", compose.read_text()))
)
SHOWN = [
    (path, block)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for block in re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL)
    if re.search(r"^models:$", block, re.MULTILINE)
]


def named(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else ""


@pytest.mark.parametrize("path", [*DEPLOYED, *COMPOSED], ids=named)
def test_a_deployed_one_is_read_and_its_models_can_be_in_one_server(path):
    models = models_file.load(path)
    assert World.of(models).size >= 1


def test_the_one_of_several_nodes_is_spread_by_mpirun(tmp_path):
    manifest = DOCKER / "kubernetes" / "multi-node" / "models.yaml"
    world = World.of(models_file.load(manifest))
    assert (world.size, world.launcher) == (16, ("trtllm-llmapi-launch",))
    (tmp_path / "models.yaml").write_text(
        manifest.read_text().replace("runtime: tensorrt_llm", "runtime: tensorrtllm")
    )
    other = World.of(models_file.load(tmp_path / "models.yaml"))
    assert (other.size, other.launcher) == (16, ())


@pytest.mark.parametrize(("path", "block"), SHOWN, ids=named)
def test_a_shown_one_is_read(tmp_path, path, block):
    (tmp_path / "models.yaml").write_text(block)
    assert models_file.load(tmp_path / "models.yaml").models
