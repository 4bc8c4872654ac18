"""The bill of materials of the environment: whole, valid, and the same each time."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from supply_chain import sbom
from tests.deploy.places import ROOT

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cyclonedx_py") is None, reason="cyclonedx-bom is not installed"
)


@pytest.fixture(scope="module")
def bill(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("bill") / "folder" / "sbom.json"
    command = [sys.executable, "-m", "supply_chain.sbom", str(file)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return file


def test_it_has_every_package_and_is_valid(bill):
    told = json.loads(bill.read_text())
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", sbom.VERSION)
    assert told["metadata"]["component"]["name"] == "triton-openai"
    found = {canonicalize_name(each["name"]): each for each in told["components"]}
    there = {canonicalize_name(each.name) for each in metadata.distributions()}
    assert there - {"triton-openai"} <= set(found)
    assert found["fastapi"]["version"] == metadata.version("fastapi")
    assert found["fastapi"]["licenses"]
    assert str(ROOT) not in bill.read_text()


def test_equal_environments_have_equal_bills(bill, tmp_path):
    again = tmp_path / "again.json"
    # the first one is checked against the schema, which takes most of the time
    subprocess.run([*sbom.command(again), "--no-validate"], check=True)
    assert again.read_bytes() == bill.read_bytes()
