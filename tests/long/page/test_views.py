"""Every view for everybody: an accessibility check, the keyboard alone, a phone, pictures."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from proxy.api.page_routes import page_files
from tests.fixtures.stack import ROOT
from tests.long.page.browser import Browser
from tests.long.page.conftest import Serve
from tests.long.page.pictures import month_of_usage, new_keys, pictures, served

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
ENTER, TAB = "\ue007", "\ue004"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CONTROLS = (
    "return [...document.querySelectorAll("
    "'a[href], button, input, select, textarea, summary, [tabindex=\"0\"]')]"
    ".filter((e) => e.checkVisibility() && !e.disabled)"
)
LABEL = "(e) => `${e.tagName} ${e.ariaLabel ?? e.name ?? ''} ${e.textContent.slice(0, 30)}`"


def violations(page: Browser) -> list[str]:
    """The rules of axe that the page breaks, with the elements."""
    page.run(AXE)
    options = {"runOnly": RULES, "resultTypes": ["violations"]}
    found = page.run("return axe.run(document, arguments[0]).then((r) => r.violations)", options)
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes']]}" for each in found]


@pytest.fixture
def views(page: Browser):
    """views(server) -> names, each while its view is open in `page`, with something to show."""

    def walk(server):
        month_of_usage(server.database)
        new_keys(server)
        page.open(f"{server.url}/#keys")
        page.wait_for("dialog")
        yield "key dialog"
        page.type("[name=key]", server.admin)
        page.press(ENTER)
        page.wait_for("td", "batch jobs")
        yield "keys"
        page.click("button.primary", "Create a key")
        page.click("dialog summary", "limits")
        yield "new key"
        page.type("dialog [name=name]", "mine")
        page.type("dialog [name=tenant]", "acme")
        page.click("dialog button.primary", "Create")
        page.wait_for(".issued")
        yield "issued key"
        for tab, text in (("Tenants", "globex"), ("Usage", "globex"), ("Audit", "created the key")):
            page.click(".tabs button", tab)
            page.wait_for("td", text)
            yield tab.lower()
        page.click(".tabs button", "Keys")
        page.click("nav a", "Status")
        page.wait_for(".state", "Live")
        yield "status"
        page.click("nav a", "Requests")
        page.wait_for(".filters [name=error]")
        yield "requests"
        page.click("nav a", "Keys")
        page.click("button.primary", "Create a key")
        page.type("dialog [name=name]", "other")
        page.type("dialog [name=tenant]", "acme")
        page.click("dialog button.primary", "Create")
        page.click(".issued button", "Use it in the playground")
        page.wait_for("h2", "Talk to")
        page.click("[name=logprobs]")
        for text in ("17 times 23?", "fail now", "warm up"):
            page.type("[name=message]", text)
            page.press(ENTER)
            page.wait("!document.querySelector('.stop')")
            if text.startswith("17"):
                page.click("[name=logprobs]")
        for part in ("Tools", "Schema", "This request"):
            page.click(".options summary", part)
        page.wait_for(".md table")
        yield "playground"
        page.click("nav a", "Requests")
        page.click("td button", "req_")
        page.wait_for(".trace")
        yield "one request"
        page.errors()  # the first key does not chat

    return walk


def test_axe_finds_no_violation_in_any_view(tmp_path: Path, page: Browser, views):
    found = {}
    with served(tmp_path) as server:
        for name in views(server):
            for theme in ("light", "dark"):
                page.show(1280, 800, theme=theme)
                found[name, theme] = violations(page)
        page.open("about:blank")
    assert len(found) == 2 * 11
    assert {name: each for name, each in found.items() if each} == {}


def test_no_view_is_wider_than_a_phone(tmp_path: Path, page: Browser, views):
    with served(tmp_path) as server:
        page.show(390, 844)
        script = "return document.documentElement.scrollWidth"
        widths = {name: page.run(script) for name in views(server)}
        page.open("about:blank")
    assert set(widths.values()) == {390}


FIRST = {
    "playground": "h2",
    "status": ".tile",
    "requests": ".filters [name=model]",
    "keys": ".notice",
}


@pytest.mark.parametrize("view", FIRST)
def test_every_control_is_reached_by_the_tab_key(serve: Serve, page: Browser, view: str):
    server = serve()
    page.open(f"{server.url}/#{view}")
    page.wait_for(
        {
            "playground": "h2",
            "status": ".tile",
            "requests": ".filters [name=model]",
            "keys": ".notice",
        }[view]
    )
    page.run(f"window.wanted = (() => {{ {CONTROLS} }})()")
    for part in ("Tools", "Schema", "This request") if view == "playground" else ():
        page.click(".options summary", part)
        page.run(f"window.wanted = (() => {{ {CONTROLS} }})()")
    page.run("window.seen = new Set(); document.activeElement.blur()")
    page.run("addEventListener('focusin', (event) => seen.add(event.target))")
    for _ in range(page.run("return wanted.length") + 4):
        page.press(TAB)
    missed = page.run(f"return wanted.filter((e) => !seen.has(e) && e.isConnected).map({LABEL})")
    assert missed == []
    outlines = page.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outlines != "none" or page.run("return document.activeElement === document.body")


def test_the_first_paint_needs_nothing_but_the_pages_own_files(serve: Serve, page: Browser):
    server = serve()
    page.command("Network.enable")
    page.command("Network.setBlockedURLs", urls=["*/v1/*", "*/openapi.json", "*/metrics/*"])
    try:
        page.open(f"{server.url}/")
        page.wait_for(".composer [name=message]")
        paths = page.run(
            "return performance.getEntriesByType('resource').map((e) => new URL(e.name).pathname)"
        )
    finally:
        page.command("Network.setBlockedURLs", urls=[])
    files = {path for path in paths if path.startswith("/page/")}
    assert {f"/page/{name}" for name in page_files()} - files == {"/page/index.html"}
    assert set(paths) - files <= {"/", "/v1/models"}
    page.errors()


def test_nothing_moves_for_those_who_want_less_motion(serve: Serve, page: Browser):
    server = serve()
    page.command(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-reduced-motion", "value": "reduce"}],
    )
    page.open(f"{server.url}/")
    page.wait_for("h2", "Talk to")
    page.type("[name=message]", "a story")
    page.press(ENTER)
    page.wait_for(".pulse")
    assert page.run("return document.getAnimations().length") == 0


def test_the_pictures_of_the_documentation_can_be_made(tmp_path: Path, page: Browser):
    folder = tmp_path / "pictures"
    folder.mkdir()
    with served(tmp_path) as server:
        taken = pictures(page, server, folder, load_s=1, settle_s=0)
        made = {path.name: size(path) for path in taken}
        page.errors()
        page.open("about:blank")
    kept = {path.name: size(path) for path in (ROOT / "docs" / "images").glob("page-*.png")}
    assert made == kept


def size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG, in pixels."""
    return struct.unpack(">II", picture.read_bytes()[16:24])
