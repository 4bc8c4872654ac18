"""`make docs`: the site is built from the pages, and all their links lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.docs.pages import ROOT

SITE = ROOT / "artifacts" / "site"
RULES = ROOT / "docker" / "prometheus"


@pytest.fixture(scope="module", autouse=True)
def _site() -> None:
    made = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr


def test_the_site_has_every_page_and_each_alerts_section():
    for page in (ROOT / "docs").glob("*.md"):
        assert (SITE / page.with_suffix(".html").name).is_file()
    runbook = (SITE / "runbook.html").read_text()
    for name in ("rules.yml", "slo.yml"):
        alerts = re.findall(r"runbook_url: .*#(\w+)", (RULES / name).read_text())
        assert alerts
        assert [one for one in alerts if f'id="{one}"' not in runbook] == []
    assert not re.findall(r'<(?:script|link)[^>]+(?:src|href)="https?://', runbook)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here")
def test_the_search_finds_pages_in_a_site_that_is_opened_as_a_file():
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000")
    page = f"{(SITE / 'api.html').as_uri()}?q=priority"
    command = ["chromium", *options, "--dump-dom", page]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert re.search(r"\d+ matching documents", shown.stdout)
