"""Status and Keys in a real browser: the live stream and its loss, keys, tenants, usage, audit."""

from __future__ import annotations

from dataclasses import fields

import httpx

from proxy.domain.identity import Limits
from tests.long.page.browser import Browser
from tests.long.page.conftest import KeyedApp, Serve
from tests.long.page.engine import PageEngine

ENTER = "\ue007"
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "endless"}], "stream": True}


def entered(page: Browser, server: KeyedApp) -> None:
    page.open(f"{server.url}/#status")
    page.type("[name=key]", server.admin)
    page.press(ENTER)
    page.wait("!document.querySelector('dialog')")
    page.errors()  # this key does not chat


def test_status_shows_a_running_request_and_the_charts_move(serve: Serve, page: Browser):
    server = serve(PageEngine())
    page.open(f"{server.url}/#status")
    page.wait_for(".tile", "Generated tokens")
    page.wait_for(".panel", "None now.")
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=CHAT) as answer:
        request_id = answer.headers["x-request-id"]
        page.wait_for("td", request_id)
        page.wait_for("td", "decode")
        page.wait(
            "parseFloat(document.querySelector('.figure').textContent) > 0", "tokens per second"
        )
        page.wait_for("td", "127.0.0.1")
    page.wait_for(".panel", "None now.")
    assert page.run("return document.querySelectorAll('.chart canvas').length") == 6


def test_the_stream_comes_back_after_the_server_has_ended_it(serve: Serve, page: Browser):
    server = serve()
    page.open(f"{server.url}/#status")
    page.wait_for(".state", "Live")
    server.app.state.stopping.set()
    page.wait_for(".state", "Connection lost")
    server.app.state.stopping.clear()
    page.wait("document.querySelector('.state').textContent === 'Live'", within_s=20)


def test_a_key_is_created_used_rotated_and_revoked(keyed: KeyedApp, page: Browser):
    entered(page, keyed)
    page.click("nav a", "Keys")
    page.click("button.primary", "Create a key")
    page.type("dialog [name=name]", "<b>batch</b>")
    page.type("dialog [name=tenant]", "acme")
    page.click("dialog summary", "Limits")
    page.type("dialog [name=requests_per_minute]", "60")
    limits = {each.name for each in fields(Limits)}
    assert limits <= set(
        page.run("return [...document.querySelectorAll('dialog input')].map(e => e.name)")
    )
    page.click("dialog button.primary", "Create")
    page.wait_for(".issued pre", "sk-")
    first = page.text(".issued pre")
    page.wait_for("td", "<b>batch</b>")
    page.wait_for("td", "requests per minute 60")
    page.click(".issued button", "Use it in the playground")
    page.wait_for("h2", "Talk to")
    page.type("[name=message]", "hello")
    page.press(ENTER)
    page.wait_for(".message.assistant", "You said: hello")
    page.click("nav a", "Keys")
    page.click("button[aria-label='Rotate <b>batch</b>']")
    page.type("dialog [name=hours]", "0")
    page.click("dialog button.primary", "Rotate")
    page.wait_for(".issued pre", "sk-")
    second = page.text(".issued pre")
    assert first != second
    assert first[:15] == second[:15], "the id stays"
    page.click("button[aria-label='Revoke <b>batch</b>']")
    page.click("dialog button.primary", "Revoke for good")
    page.wait_for("td .bad", "revoked")
    page.click(".tabs button", "Audit")
    page.wait_for("td", "keys.revoke")


def test_tenants_and_their_usage(keyed: KeyedApp, page: Browser):
    entered(page, keyed)
    page.click("nav a", "Keys")
    page.click(".tabs button", "Tenants")
    page.click("button.primary", "Create a tenant")
    page.type("dialog [name=name]", "globex")
    page.type("dialog [name=weight]", "2")
    page.click("dialog button.primary", "Save")
    page.wait_for("td", "globex")
    page.click("button[aria-label='Change globex']")
    page.click("dialog [name=is_active]")
    page.click("dialog button.primary", "Save")
    page.wait_for("td .bad", "suspended")
    page.click("button.primary", "Create a tenant")
    page.type("dialog [name=name]", "default")
    page.click("dialog button.primary", "Save")
    page.wait_for("dialog .error", "reserved")
    assert all("400" in each for each in page.errors())
    page.click("dialog button", "Cancel")
    page.click(".tabs button", "Usage")
    page.wait_for(".sums", "requests")
    page.wait("document.querySelector('.chart canvas')")


def test_without_administration_status_shows_what_metrics_do(serve: Serve, page: Browser):
    server = serve(admin="off")
    page.open(f"{server.url}/#status")
    page.wait_for(".note", "ADMIN=on")
    page.wait_for("h2", "Models")
    page.click("nav a", "Keys")
    page.wait_for("h2", "no store of keys")
    assert page.run("return document.body.textContent.includes('Endpoints')") is False
