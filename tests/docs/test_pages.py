"""What pages promise about themselves: the README's length, generated tables, complete lists."""

from __future__ import annotations

import re

import pytest

from build_engines.deployments import (
    CanaryEntry,
    DeploymentEntry,
    HeaderRule,
    ShadowEntry,
)
from build_engines.models_file import (
    BuiltEntry,
    LimitsEntry,
    ModelsFile,
    OnnxOptions,
    SamplingDefaults,
)
from build_engines.pool_entry import PoolEntry
from build_engines.vllm.options import VllmOptions
from proxy.domain.errors import ErrorCode
from proxy.language.syntax.families import REASONING_FAMILIES, TOOL_FAMILIES
from proxy.settings import Settings
from tests.deploy.test_metrics import engine_metrics, proxy_metrics
from tests.docs import generated, settings_tables
from tests.docs.pages import ROOT

README, FEATURES = (ROOT / "README.md").read_text(), (ROOT / "docs" / "features.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


def test_the_tables_of_settings_are_those_of_the_code():
    page = settings_tables.PAGE.read_text()
    assert settings_tables.page(page) == page, "run: make doc-tables"


@pytest.mark.parametrize("name", generated.PAGES)
def test_a_generated_page_is_what_the_code_says(name):
    page = (generated.FOLDER / name).read_text()
    assert generated.PAGES[name]() == page, "run: make doc-tables"


def test_families_are_as_many_as_pages_say():
    tools = f"{len(TOOL_FAMILIES)} families"
    assert f"{tools} of tool calls and {len(REASONING_FAMILIES)} of reasoning" in README
    assert tools in FEATURES


def test_every_setting_is_described_in_a_group():
    described = [field for _, fields in settings_tables.groups() for field in fields.items()]
    assert sorted(name for name, _ in described) == sorted(Settings.model_fields)
    assert [name for name, text in described if not text.endswith(".")] == []


@pytest.mark.parametrize(
    "section",
    [
        *(ModelsFile, BuiltEntry, OnnxOptions, LimitsEntry, SamplingDefaults, PoolEntry),
        *(DeploymentEntry, CanaryEntry, HeaderRule, ShadowEntry),
    ],
)
def test_every_option_of_a_model_is_documented(section):
    options = CONFIGURATION[CONFIGURATION.index("## models.yaml") :]
    named = set(re.findall(r"`(\w+)`", options))
    assert set(section.model_fields) - named == set()


def test_every_option_of_vllm_is_documented():
    page = (ROOT / "docs" / "vllm.md").read_text()
    assert [name for name in VllmOptions.model_fields if f"`{name}`" not in page] == []


def test_every_metric_is_in_the_generated_table():
    page = generated.metrics()
    of_proxy = {re.sub(r"_(bucket|sum|count|created)$", "", one) for one in proxy_metrics()}
    assert {one for one in of_proxy | engine_metrics() if f"`{one}`" not in page} == set()


def test_every_error_code_is_documented_with_its_status():
    page = (ROOT / "docs" / "api.md").read_text()
    table = page.partition("## Errors")[2].partition("## Usage")[0]
    rows = re.findall(r"^\| (\d{3}) \| (.+?) \|", table, re.MULTILINE)
    documented = {
        (int(status), code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)
    }
    assert documented == {(code.status, code.value) for code in ErrorCode}


def test_folders_that_a_page_makes_in_a_clone_are_ignored_by_git():
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    made = [
        name
        for path in (ROOT / "docs").glob("*.md")
        for name in re.findall(r"^mkdir (\w+)", path.read_text(), re.MULTILINE)
    ]
    assert "rehearsal" in made
    assert [name for name in made if f"/{name}/" not in ignored] == []
