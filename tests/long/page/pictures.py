"""Pictures of all views, light and dark and on a phone, over a scripted engine under some load.

`python -m tests.long.page.pictures` writes those of the documentation.
"""

from __future__ import annotations

import io
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from rich.console import Console
from structlog.testing import capture_logs

from proxy.domain.endpoints import EngineLoad
from proxy.operate.administration.remote import AdminClient
from proxy.operate.live.top import FrameReader, Top
from tests.docs.pages import ROOT
from tests.docs.terminal import WEB_FONTS
from tests.doubles.pools import endpoint
from tests.long.page.browser import Browser, browser
from tests.long.page.conftest import KeyedApp
from tests.long.page.engine import PageCatalog, PageEngine

FOLDER = ROOT / "docs" / "images"
MODELS = {"llama-3.1-8b": 0.4, "qwen3-8b": 0.3}  # and their price of a million tokens
TENANTS = ("acme", "globex", "initech")
BUDGETS = {"acme": 5, "globex": 2, "initech": 10}
ENTER = "\ue007"
SHOWN_URL = "http://127.0.0.1:9000"
LAPTOP, TALL, PHONE = (1280, 800), (1280, 1320), (390, 844)
LOADS = (
    EngineLoad(waiting=0, running=5, kv_in_use=0.62),
    EngineLoad(waiting=1, running=4, kv_in_use=0.41),
)


@contextmanager
def served(folder: Path) -> Iterator[KeyedApp]:
    models_file = folder / "models.yaml"
    entries = [
        f"  {name}: {{weights: w, price: {{input: {price}, output: {3 * price}}}}}"
        for name, price in MODELS.items()
    ]
    models_file.write_text("models:\n" + "\n".join(entries) + "\n")
    endpoints = [
        endpoint(f"10.0.0.{number}:8001", load=load, streams=load.running)
        for number, load in enumerate(LOADS, start=7)
    ]
    engine, catalog = PageEngine(step_s=0.03), PageCatalog(*MODELS)
    made = KeyedApp(engine, folder, catalog=catalog, models_file=models_file, endpoints=endpoints)
    with capture_logs(), made as server:
        yield server


def month_of_usage(database: Path) -> None:
    """Rows as the proxy writes them, for the days before today."""
    rng = random.Random(7)
    with sqlite3.connect(database) as store:
        for ago in range(1, 30):
            day = date.today() - timedelta(days=ago)
            busy = 0.35 if day.weekday() > 4 else 1.0
            for place, tenant in enumerate(TENANTS):
                requests = int(busy * rng.uniform(300, 500) / (place + 1))
                tokens = (requests * 420, requests * 160, requests * 210)
                values = (str(day), tenant, f"key{place}", [*MODELS][place % 2], requests, place)
                store.execute(
                    "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?)",
                    (*values, *tokens, sum(tokens) * 0.5e-6),
                )
    store.close()


def new_keys(server: KeyedApp) -> list[str]:
    admin = {"authorization": f"Bearer {server.admin}"}
    found = []
    with httpx.Client(base_url=f"{server.url}/admin/v1", headers=admin) as http:
        for tenant, name in zip(TENANTS, ("web app", "batch jobs", "research"), strict=True):
            limits = {"requests_per_minute": 600, "monthly_budget": BUDGETS[tenant]}
            http.post("/tenants", json={"name": tenant, "limits": limits}).raise_for_status()
            body = {"tenant": tenant, "name": name, "scopes": ["chat", "models"]}
            found.append(http.post("/keys", json=body).raise_for_status().json()["key"])
    return found


@contextmanager
def load(server: KeyedApp, keys: list[str]) -> Iterator[None]:
    stop, rng = threading.Event(), random.Random(3)

    def ask(key: str, place: int) -> None:
        headers = {"authorization": f"Bearer {key}"}
        body = {"messages": [{"role": "user", "content": "a story"}]}
        with httpx.Client(base_url=server.url, headers=headers, timeout=60) as http:
            while not stop.is_set():
                model = [*MODELS][place % 2] if rng.random() < 0.97 else "gpt-4o"
                http.post("/v1/chat/completions", json={"model": model, **body})
                stop.wait(rng.uniform(0, 0.8))

    threads = [threading.Thread(target=ask, args=(keys[place % 3], place)) for place in range(7)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def log_in(page: Browser, server: KeyedApp) -> None:
    page.open(f"{server.url}/#keys")
    page.type("[name=key]", server.admin)
    page.press(ENTER)
    page.click("button.primary", "Create a key")
    page.type("dialog [name=name]", "playground")
    page.type("dialog [name=tenant]", "acme")
    page.click("dialog button.primary", "Create")
    page.click(".issued button", "Use it in the playground")


def get_code(page: Browser) -> None:
    for text in ("Translate a menu into French", "Names for a bakery", "How do I warm up a model?"):
        page.click("button.new")
        page.wait_for("h2", "Talk to")
        page.type("[name=message]", text)
        page.press(ENTER)
        page.wait("document.querySelector('.figures')?.textContent.includes('stop')")
    page.wait_for(".md table")


def talk(page: Browser) -> None:
    page.click("button.new")
    page.type("[name=message]", "What is 17 times 23?")
    page.press(ENTER)
    page.wait("document.querySelector('.figures')?.textContent.includes('stop')")
    page.run("document.querySelector('.reasoning').open = true")
    page.click("[name=logprobs]")
    page.type("[name=message]", "Well done. Now tell me a story.")
    page.press(ENTER)
    page.wait("document.querySelectorAll('.figures')[1]?.textContent.includes('stop')")
    pointed = "document.querySelectorAll('[data-token]')[5]"
    page.run(f"{pointed}.dispatchEvent(new MouseEvent('mouseover', {{bubbles: true}}))")
    page.run("document.querySelector('.options').scrollTop = 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """Takes pictures of the open view: light, dark, and on a phone.

    settle_s: before each, so that nothing on the page moves any more.
    """

    page: Browser
    folder: Path
    settle_s: float

    def take(self, name: str, size: tuple[int, int]) -> Iterator[Path]:
        for theme in ("light", "dark"):
            self.page.show(*size, theme=theme)
            yield self._written(f"page-{name}-{theme}.png")
        self.page.show(*PHONE, theme="light", scale=1.5)
        self.page.run("scrollTo(0, 0)")
        yield self._written(f"page-{name}-phone.png")

    def _written(self, name: str) -> Path:
        time.sleep(self.settle_s)
        path = self.folder / name
        path.write_bytes(self.page.picture())
        return path


def pictures(
    page: Browser, server: KeyedApp, folder: Path, *, load_s: float, settle_s: float
) -> Iterator[Path]:
    """load_s: for so long the charts fill. settle_s: see Camera."""
    camera = Camera(page=page, folder=folder, settle_s=settle_s)
    month_of_usage(server.database)
    keys = new_keys(server)
    page.show(*LAPTOP)
    log_in(page, server)
    get_code(page)
    yield from camera.take("playground", LAPTOP)
    page.show(*LAPTOP)
    talk(page)
    yield from camera.take("probabilities", LAPTOP)
    with load(server, keys):
        page.show(*TALL)
        page.click("nav a", "Status")
        time.sleep(load_s)
        page.wait_for("td", "decode")
        yield from camera.take("status", TALL)
        (folder / "top.svg").write_text(top(server))
    page.show(*LAPTOP)
    page.click("nav a", "Requests")
    page.wait_for(".filters [name=error]")
    page.click("td button", "req_")
    page.wait_for(".trace")
    yield from camera.take("requests", LAPTOP)
    page.click("dialog button", "Close")
    page.show(*LAPTOP)
    page.click("nav a", "Keys")
    page.wait_for("td", "batch jobs")
    yield from camera.take("keys", LAPTOP)
    page.show(*LAPTOP)
    page.click(".tabs button", "Tenants")
    page.wait_for("td .meter")
    yield from camera.take("tenants", LAPTOP)
    page.show(*LAPTOP)
    page.click(".tabs button", "Usage")
    page.wait_for("td", "globex")
    yield from camera.take("usage", LAPTOP)


def top(server: KeyedApp) -> str:
    """`triton-openai top` of the server, as a terminal of 100 columns shows it."""
    out = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, highlight=False)
    with (
        AdminClient(server.url, key=server.admin) as proxy,
        closing(FrameReader(proxy)) as reader,
    ):
        named = partial(replace, url=SHOWN_URL)
        Top(lambda: named(reader.last()), time.sleep, out.print, interval_s=5).once()
    return WEB_FONTS.sub("", out.export_svg(title="triton-openai top"))


if __name__ == "__main__":
    with (
        TemporaryDirectory() as data,
        TemporaryDirectory() as profile,
        served(Path(data)) as server,
        browser(Path(profile)) as page,
    ):
        for _ in pictures(page, server, FOLDER, load_s=120, settle_s=1.5):
            pass
        page.open("about:blank")
