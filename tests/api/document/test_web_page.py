"""The web page at `/`: its headers, its files, its weight, and that it names no other host."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from proxy.api.page_routes import page_files
from tests.doubles.engine import ScriptedEngine

FOLDER = Path(__file__).parents[3] / "proxy" / "page"
VENDORED = re.findall(
    r"^\| `([\w.]+)` .* `(\w{64})` \|$", (FOLDER / "vendor" / "README.md").read_text(), re.MULTILINE
)
OWN = [name for name in page_files() if not name.startswith("vendor/")]
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
MOST_BYTES, MOST_LINES = 120_000, 3000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def test_a_browser_gets_the_page_and_a_program_the_list_of_endpoints(idle):
    page = idle.get("/", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    listed = idle.get("/", headers={"accept": "text/html;q=0, */*"})
    assert "GET /v1/models" in listed.json()["endpoints"]
    assert listed.json()["needs_key"] is False
    assert "Accept" in page.headers["vary"]
    assert "Accept" in listed.headers["vary"]


def test_its_policy_allows_this_server_alone_and_nothing_inline(idle):
    for path in ("/", "/page/app.js", "/page/style.css"):
        headers = idle.get(path, headers=BROWSER).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", idle.get("/", headers=BROWSER).text)


@pytest.mark.parametrize("name", page_files())
@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("gzip", "gzip"), ("identity", "identity"), ("br, gzip;q=0", "identity")],
)
def test_a_file_comes_in_either_coding_and_not_again_while_it_is_the_same(
    idle, name, accepted, coding
):
    path, accepts = f"/page/{name}", {"accept-encoding": accepted}
    answer = idle.get(path, headers=accepts)
    assert answer.content == (FOLDER / name).read_bytes()
    assert answer.headers.get("content-encoding", "identity") == coding
    again = idle.get(path, headers={**accepts, "if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert idle.get(path, headers={"if-none-match": 'W/"other"'}).status_code == 200


LINK = re.compile(r'(?:from "\./|src="page/|href="page/)([\w./]+)"')


def test_all_that_the_page_loads_is_there_and_weighs_little():
    loaded, due = {"index.html"}, ["index.html"]
    while due:
        name = due.pop()
        folder = "vendor/" if name.startswith("vendor/") else ""
        found = {folder + link for link in LINK.findall(page_files()[name].content.decode())}
        due += [link for link in found - loaded if link.endswith(".js")]
        loaded |= found
    assert loaded == page_files().keys()
    assert sum(len(page_files()[name].packed) for name in loaded) < MOST_BYTES


def test_our_files_are_short_and_name_no_other_host():
    texts = {name: (FOLDER / name).read_text() for name in OWN}
    lines = [
        line
        for name, text in texts.items()
        if name.endswith((".js", ".css"))
        for line in text.splitlines()
    ]
    assert len(lines) <= MOST_LINES
    hosts = {name: re.findall(r"\w+://[\w.-]+", text) for name, text in texts.items()}
    assert {host for found in hosts.values() for host in found} == {"http://www.w3.org"}, "of SVG"
    forbidden = r"innerHTML|dangerouslySetInnerHTML|insertAdjacentHTML|document\.write|\beval\("
    assert [name for name, text in texts.items() if re.search(forbidden, text)] == []
    assert len(re.findall(r"font(?:-family)?:[^;]*sans-serif", texts["style.css"])) == 1


def test_vendored_files_are_those_of_their_packages():
    found = {path.name: path.read_text() for path in (FOLDER / "vendor").glob("uplot.*")}
    found |= {path.name: path.read_text() for path in (FOLDER / "vendor").glob("*.js")}
    found["hooks.js"] = found["hooks.js"].replace('from"./preact.js"', 'from"preact"')
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in found.items()}
    assert digests == dict(VENDORED)


def test_packed_files_are_the_files():
    for name, file in page_files().items():
        assert gzip.decompress(file.packed) == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("path", ["none.js", "vendor/README.md", "..%2Fapp.py", "vendor", ""])
def test_no_other_file_is_shown(idle, path):
    assert idle.get(f"/page/{path}").status_code == 404


def test_a_setting_turns_it_off(serve):
    client = serve(ScriptedEngine(), page=False)
    assert "endpoints" in client.get("/", headers=BROWSER).json()
    assert client.get("/page/app.js").status_code == 404
