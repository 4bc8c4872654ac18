"""Status and Keys in a real browser: the live stream and its loss, keys, tenants, usage, audit."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from proxy.domain.identity import LIMIT_FIELDS
from proxy.domain.key_records import KEY_FIELDS, TENANT_FIELDS
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


def test_status_shows_open_batches(serve: Serve, page: Browser, tmp_path: Path):
    server = serve(PageEngine(), files_url=str(tmp_path))
    page.open(f"{server.url}/#status")
    page.wait_for(".tile", "Generated tokens")
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}
    text = json.dumps({**line, "body": {"model": "demo", "messages": CHAT["messages"]}})
    with httpx.Client(base_url=server.url) as client:
        form = {"data": {"purpose": "batch"}, "files": {"file": ("a.jsonl", text.encode())}}
        file = client.post("/v1/files", **form).json()["id"]
        asked = {"input_file_id": file, "endpoint": line["url"], "completion_window": "24h"}
        batch = client.post("/v1/batches", json=asked).json()["id"]
        page.wait_for(".panel", "of all tenants")
        assert client.post(f"/v1/batches/{batch}/cancel").status_code == 200


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
    page.click("dialog summary", "limits")
    page.type("dialog [name=requests_per_minute]", "60")
    names = set(page.run("return [...document.querySelectorAll('dialog input')].map(e => e.name)"))
    assert {each.name for each in LIMIT_FIELDS} <= names
    assert {each.name for each in KEY_FIELDS if each.shown.create is not None} - {"limits"} <= names
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
    page.wait_for("td", "administration / first admin key revoked the key acme / <b>batch</b>")
    page.wait_for("td", "limits requests per minute: 60")


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
    page.click(".tabs button", "Tenants")
    page.click("button[aria-label='Delete globex']")
    page.click("dialog button.primary", "Delete for good")
    page.wait("![...document.querySelectorAll('td')].some((e) => e.textContent === 'globex')")


def test_without_administration_status_shows_what_metrics_do(serve: Serve, page: Browser):
    server = serve(admin="off")
    page.open(f"{server.url}/#status")
    page.wait_for(".note", "ADMIN=on")
    page.wait_for("h2", "Models")
    page.click("nav a", "Keys")
    page.wait_for("h2", "no store of keys")
    assert page.run("return document.body.textContent.includes('Endpoints')") is False


def as_admin(server: KeyedApp) -> httpx.Client:
    headers = {"authorization": f"Bearer {server.admin}"}
    return httpx.Client(base_url=f"{server.url}/admin/v1", headers=headers)


def test_a_key_and_a_tenant_are_changed_and_what_is_used_of_each_limit_is_shown(
    keyed: KeyedApp, page: Browser
):
    with as_admin(keyed) as admin:
        admin.post("/tenants", json={"name": "acme"}).raise_for_status()
        made = admin.post("/keys", json={"tenant": "acme", "name": "web"}).json()
        entered(page, keyed)
        page.click("nav a", "Keys")
        page.click("button[aria-label='Change web']")
        page.type("dialog [name=name]", "site")
        page.click("dialog [name=scopes][value=embeddings]")
        page.click("dialog summary", "limits")
        page.type("dialog [name=monthly_tokens]", "100")
        page.click("dialog button.primary", "Save")
        page.wait_for("td", "acme / site")
        key = admin.get(f"/keys/{made['id']}").json()
        assert (key["name"], key["limits"]) == ("site", {"monthly_tokens": 100})
        assert key["scopes"] == [each for each in made["scopes"] if each != "embeddings"]
        assert page.run("return document.activeElement.ariaLabel") in ("Change site", "Change web")
        page.click(".tabs button", "Tenants")
        page.click("button[aria-label='Change acme']")
        names = page.run("return [...document.querySelectorAll('dialog input')].map(e => e.name)")
        changes = {each.name for each in TENANT_FIELDS if each.shown.change is not None}
        assert changes - {"limits", "of_models"} <= set(names)
        page.click("dialog [name=records]")
        page.click("dialog summary", "Limits of single models")
        page.type("dialog [list=all-models]", "demo\ue004")
        page.wait_for("dialog b", "demo")
        page.type("dialog [name='demo/requests_per_minute']", "10")
        page.click("dialog button.primary", "Save")
        page.wait_for("td", "demo: requests per minute 10")
        tenant = admin.get("/tenants/acme").json()
        assert tenant["of_models"] == {"demo": {"requests_per_minute": 10}}
        assert tenant["records"] is True
        chat = {"authorization": f"Bearer {made['key']}"}
        body = {"model": "demo", "messages": [{"role": "user", "content": "a story"}]}
        url = f"{keyed.url}/v1/chat/completions"
        assert httpx.post(url, json={**body, "max_tokens": 60}, headers=chat).status_code == 200
        page.click("button[aria-label='Used of the limits of acme']")
        page.wait_for("dialog td", "1 of 10")
        page.click("dialog button", "Close")
        page.click(".tabs button", "Keys")
        page.wait_for("td .bad .meter")
        page.click("button[aria-label='Used of the limits of site']")
        page.wait_for("dialog td.number .bad", "of 100")  # beyond the mark
        page.click("dialog button", "Close")
        page.click(".tabs button", "Tenants")
        page.click("button[aria-label='Change acme']")
        page.click("dialog summary", "Limits of single models")
        page.click("button[aria-label='Remove the limits of demo']")
        page.click("dialog button.primary", "Save")
        page.wait("!document.querySelector('dialog')")
        assert admin.get("/tenants/acme").json()["of_models"] == {}


def test_many_keys_are_in_pages_and_found_by_text_and_state(keyed: KeyedApp, page: Browser):
    with as_admin(keyed) as admin:
        admin.post("/tenants", json={"name": "acme"}).raise_for_status()
        for number in range(30):
            body = {"tenant": "acme", "name": f"key {number:02d}"}
            made = admin.post("/keys", json=body).json()
        admin.post(f"/keys/{made['id']}/revoke").raise_for_status()
    entered(page, keyed)
    page.click("nav a", "Keys")
    page.wait_for(".pages", "25 of 31")
    rows = "return document.querySelectorAll('tbody tr').length"
    assert page.run(rows) == 25
    page.click("[aria-label='Keys: next page']")
    page.wait_for(".pages", "31 of 31")
    assert page.run(rows) == 6
    page.type("[name=search]", "key 1")
    page.wait("document.querySelectorAll('tbody tr').length === 10")
    page.type("[name=search]", "\ue003")
    page.run(
        "const e = document.querySelector('[name=state]'); e.value = 'revoked';"
        "e.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    page.wait_for("td", "acme / key 29")


def test_requests_are_listed_filtered_and_opened(serve: Serve, page: Browser):
    server = serve()
    body = {"messages": [{"role": "user", "content": "hi"}]}
    for model, name in (("demo", "right"), ("none", "wrong")):
        headers = {"x-request-id": name}
        url = f"{server.url}/v1/chat/completions"
        httpx.post(url, json={"model": model, **body}, headers=headers)
    page.open(f"{server.url}/#requests")
    page.wait_for("td", "right")
    page.wait_for("td .bad", "model_not_found")
    wanted = ["error", "failed", "key_id", "limit", "min_ms", "model", "tenant"]
    page.wait("document.querySelector('.filters [name=error]')")
    names = page.run("return [...document.querySelectorAll('.filters [name]')].map((e) => e.name)")
    assert sorted(names) == wanted
    page.click("td button", "right")
    page.wait_for("dialog .trace th", "triton")
    page.wait_for("dialog .facts", "completion tokens")
    widths = page.run(
        "return [...document.querySelectorAll('.track i')].map((e) => parseFloat(e.style.width))"
    )
    assert widths[0] == 100
    assert all(0 <= width <= 100 for width in widths)
    page.click("dialog button", "Close")
    page.type("[name=model]", "demo")
    page.press(ENTER)
    page.run("document.activeElement.blur()")
    page.wait("document.querySelectorAll('tbody tr').length === 1")


@pytest.mark.parametrize("view", ["status", "usage"])
def test_failures_lead_to_their_requests(keyed: KeyedApp, page: Browser, view: str):
    with as_admin(keyed) as admin:
        admin.post("/tenants", json={"name": "acme"}).raise_for_status()
        made = admin.post("/keys", json={"tenant": "acme", "name": "web"}).json()
    body = {"model": "demo", "messages": [{"role": "user", "content": "fail at once"}]}
    headers = {"authorization": f"Bearer {made['key']}", "x-request-id": "failed:1"}
    httpx.post(f"{keyed.url}/v1/chat/completions", json=body, headers=headers)
    entered(page, keyed)
    if view == "status":
        page.click(".panel td a", "model_unavailable")
    else:
        page.click("nav a", "Keys")
        page.click(".tabs button", "Usage")
        page.wait_for("td", "demo")
        page.click("td a", "1")
    page.wait_for("td", "failed:1")
    page.wait_for("td", "acme / web")
    assert page.run("return document.querySelectorAll('tbody tr').length") == 1
