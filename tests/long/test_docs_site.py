"""`make docs`: the site is built from the pages, and all their links lead somewhere."""

from __future__ import annotations

import re
import subprocess

from tests.docs.pages import ROOT

RULES = ROOT / "docker" / "prometheus"


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
