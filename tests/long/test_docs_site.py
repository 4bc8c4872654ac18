"""`make docs`: the site is built from the pages, and a link that leads nowhere ends the build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.docs.pages import ROOT

COPIED = ("docs", "examples", "model_repository/ensemble")
RULES = ROOT / "docker" / "prometheus"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """The same command, over a copy of the sources."""
    mkdocs = ROOT / ".venv-docs" / "bin" / "mkdocs"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [str(mkdocs), "build", "--strict"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_site_has_every_page_and_each_alerts_section():
    made = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    site = ROOT / "artifacts" / "site"
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).is_file()
    runbook = (site / "runbook.html").read_text()
    for name in ("rules.yml", "slo.yml"):
        alerts = re.findall(r"runbook_url: .*#(\w+)", (RULES / name).read_text())
        assert alerts
        assert [one for one in alerts if f'id="{one}"' not in runbook] == []
    assert not re.findall(r'<(?:script|link)[^>]+(?:src|href)="https?://', runbook)


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path):
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name)
    for path in [*ROOT.glob("*.md"), ROOT / "mkdocs.yml"]:
        shutil.copy(path, tmp_path)
    assert build(tmp_path).returncode == 0
    with (tmp_path / "docs" / "api.md").open("a") as page:
        page.write("[a](missing.md) [b](../missing.py) [c](pools.md#missing)\n")
    made = build(tmp_path)
    assert made.returncode != 0
    assert "3 warnings in strict mode" in made.stdout
