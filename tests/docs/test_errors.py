"""The table of errors in docs/api.md has every code of the code, with its status."""

from __future__ import annotations

import re

from proxy.domain.errors import ErrorCode
from tests.docs.pages import ROOT


def test_every_error_code_is_documented_with_its_status():
    page = (ROOT / "docs" / "api.md").read_text()
    table = page.partition("## Errors")[2].partition("## Usage")[0]
    rows = re.findall(r"^\| (\d{3}) \| (.+?) \|", table, re.MULTILINE)
    documented = {
        (int(status), code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)
    }
    assert documented == {(code.status, code.value) for code in ErrorCode}
