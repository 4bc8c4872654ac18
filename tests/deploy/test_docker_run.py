"""The `docker run` of the README and the GPU tutorial: one command, which runs as compose does."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest
import typer

from proxy.cli import app
from tests.deploy.places import DOCKER, ROOT, documents, is_known, starts_with_keys

PAGES = (ROOT / "README.md", ROOT / "docs" / "gpu_tutorial.md")
[COMPOSE] = documents(DOCKER / "compose.yaml")
SERVICES = COMPOSE["services"]
UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def command(page: Path) -> list[str]:
    """Its words; those after the image last."""
    found = re.search(r"docker run --rm --gpus all --shm(?:\\\n|.)*", page.read_text())
    return shlex.split(found[0].replace("\\\n", " "))[3:]


def options(page: Path) -> tuple[dict[str, list[str]], list[str]]:
    """--option -> its values; and what follows them."""
    words, found = command(page), defaultdict(list)
    while words[0].startswith("--"):
        found[words.pop(0)].append(words.pop(0))
    return found, words


def size(text: str) -> int:
    number, unit = re.fullmatch(r"(?:\$\{\w+:-)?(\d+)([bkmg])b?\}?", text).groups()
    return int(number) * UNITS[unit]


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_both_pages_have_the_same():
    (one, [image, *does]), (other, [other_image, *does_any]) = map(options, PAGES)
    assert one == other
    assert image == other_image == SERVICES["triton"]["image"]
    assert does == ["triton-openai", "serve"]
    assert does_any == ["$@"]
    assert does[1] in typer.main.get_command(app).commands


@each_page
def test_it_gives_the_image_what_compose_gives_it(page):
    found, _ = options(page)
    triton, build = SERVICES["triton"], SERVICES["build"]
    assert found["--gpus"] == [triton["deploy"]["resources"]["reservations"]["devices"][0]["count"]]
    assert [size(each) for each in found["--shm-size"]] == [size(triton["shm_size"])]
    assert [size(each) for each in found["--memory"]] == [size(triton["mem_limit"])]
    limits = dict(each.split("=") for each in found["--ulimit"])
    assert limits == {name: str(value) for name, value in triton["ulimits"].items()}
    assert found["--cap-drop"] == triton["cap_drop"]
    assert found["--security-opt"] == triton["security_opt"]
    assert f"{found['--stop-timeout'][0]}s" == triton["stop_grace_period"]
    weights, models = found["--volume"]
    assert weights == f"{COMPOSE['name']}_{triton['volumes'][0]}"
    assert models.rpartition("$MODELS_FILE:")[2] == triton["volumes"][1].rpartition("}:")[2]
    assert models.startswith("$MODELS_FILE:")
    assert {"HF_TOKEN"} == build["environment"].keys() <= set(found["--env"])


@each_page
def test_it_serves_this_machine_as_the_images_user(page):
    found, _ = options(page)
    [user] = re.findall(r"^USER (\S+)", (DOCKER / "triton.Dockerfile").read_text(), re.MULTILINE)
    assert found["--user"] == [user]
    assert found["--publish"] == ["127.0.0.1:9000:9000"]
    given = dict(each.partition("=")[::2] for each in found["--env"])
    assert [name for name in given if not is_known(name)] == []
    assert given["HOST"] == "0.0.0.0"
    starts_with_keys(given)
