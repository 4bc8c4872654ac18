"""/docs and /redoc load everything from this server, and their headers allow nothing else."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest

from proxy.api.pages.pages_routes import FILES
from tests.doubles.engine import ScriptedEngine

FOLDER = Path(__file__).parents[3] / "proxy" / "api" / "pages" / "page_files"
ROW = re.compile(r"^\| `([\w.-]+)` .* `(\w{64})` \|$", re.MULTILINE)
VENDORED = ROW.findall((FOLDER / "README.md").read_text())
LINK = re.compile(r"""(?:src|href|spec-url)\s*=\s*"([^"]*)\"""")


@pytest.fixture
def client(serve):
    return serve(ScriptedEngine())


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_all_that_a_page_refers_to_comes_from_this_server(client, page):
    answer = client.get(page)
    assert answer.headers["content-type"].startswith("text/html")
    links = [link for link in LINK.findall(answer.text) if not link.startswith("data:")]
    assert len(links) >= 4
    for link in links:
        assert re.fullmatch(r"[\w.-]+(/[\w.-]+)*", link), "relative, so that a path prefix is kept"
        found = client.get(urljoin(page, link))
        assert (found.status_code, bool(found.content)) == (200, True), link
        assert "//" not in link


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_a_pages_policy_allows_only_this_server_and_no_inline_script(client, page):
    answer = client.get(page)
    policy = {
        name: values
        for name, *values in map(str.split, answer.headers["content-security-policy"].split(";"))
    }
    assert policy["default-src"] == ["'none'"]
    assert policy["script-src"] == policy["connect-src"] == ["'self'"]
    allowed = {value for values in policy.values() for value in values}
    others = {value for value in allowed if not value.startswith("'sha256-")}
    assert others == {"'none'", "'self'", "data:"}
    assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", answer.text)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("gzip", "gzip"), ("br, GZIP;q=0.1", "gzip"), ("identity", "identity")]
    + [(refused, "identity") for refused in ("gzip;q=0", "br, gzip; q=0.0", "xgzip")],
)
def test_a_file_comes_compressed_to_who_can_read_it_and_is_the_same(client, name, accepted, coding):
    answer = client.get(f"/docs/{name}", headers={"accept-encoding": accepted})
    packed = FOLDER / f"{name}.gz"
    is_packed = packed.exists()
    assert answer.headers.get("content-encoding", "identity") == (
        coding if is_packed else "identity"
    )
    held = gzip.decompress(packed.read_bytes()) if is_packed else (FOLDER / name).read_bytes()
    assert answer.content == held
    assert answer.headers["content-type"] == f"{FILES[name]}; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_vendored_files_are_those_of_the_readme():
    packed = {path.name.removesuffix(".gz"): path for path in FOLDER.glob("*.gz")}
    assert dict(VENDORED).keys() == packed.keys()
    for name, digest in VENDORED:
        assert hashlib.sha256(gzip.decompress(packed[name].read_bytes())).hexdigest() == digest


def test_every_file_of_the_folder_is_used():
    pages = {"docs.html", "redoc.html", "README.md"}
    assert {path.name.removesuffix(".gz") for path in FOLDER.iterdir()} == {*FILES, *pages}


@pytest.mark.parametrize("name", ["x.js", "README.md", "..%2Fpages.py", "docs.html"])
def test_no_other_file_is_shown(client, name):
    assert client.get(f"/docs/{name}").status_code == 404
