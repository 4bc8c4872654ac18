"""A headless Chromium, driven over WebDriver's HTTP protocol by Debian's chromedriver."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.fixtures.stack import HANG_S, eventually, free_port

OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",  # containers have little of it
)
MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of a reference, in the specification
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Right": "\ue014"}


class Browser:
    """css: a selector; its first match counts."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def open(self, url: str) -> None:
        self._post("url", url=url)

    def run(self, script: str, *arguments: object) -> Any:
        """The value that the script returns, or that the promise that it returns is resolved to."""
        return self._post("execute/sync", script=script, args=arguments)

    def wait(self, condition: str, what: str | None = None, within_s: float = 10) -> float:
        """condition: JavaScript. Seconds until it is true."""
        return eventually(lambda: self.run(f"return !!({condition})"), within_s, what or condition)

    def wait_for(self, css: str, text: str = "") -> None:
        """An element that has the text."""
        what = f"{css} with {text!r}; the page has {self.text('body')[:2000]!r}"
        self.wait(_found(css, text), what)

    def click(self, css: str, text: str = "") -> None:
        """The first match with the text."""
        self.wait_for(css, text)
        script = f"const e = {_found(css, text)}; e.scrollIntoView({{block: 'center'}}); return e"
        self._post(f"element/{self.run(script)[ELEMENT]}/click")

    def type(self, css: str, text: str) -> None:
        """Replaces what the field has."""
        self.wait_for(css)
        self.run("const e = document.querySelector(arguments[0]); e.focus(); e.select()", css)
        self.press(text)

    def press(self, text: str) -> None:
        actions = [{"type": kind, "value": one} for one in text for kind in ("keyDown", "keyUp")]
        self._post("actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def text(self, css: str) -> str:
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css)

    def choose_file(self, css: str, path: Path) -> None:
        element = self.run("return document.querySelector(arguments[0])", css)
        self._post(f"element/{element[ELEMENT]}/value", text=str(path))

    def show(self, width: int, height: int, *, theme: str = "light", scale: float = 1) -> None:
        """The size of the window, and the system's theme."""
        is_phone = width < 600
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": is_phone}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def picture(self) -> bytes:
        return base64.b64decode(self._send("GET", "screenshot"))

    def command(self, name: str, **parameters: object) -> Any:
        """Calls a command of Chromium's DevTools protocol."""
        return self._post("goog/cdp/execute", cmd=name, params=parameters)

    def errors(self) -> list[str]:
        """What the console has, since the last call, of errors and violations of the policy."""
        entries = self._post("se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def _post(self, path: str, **body: object) -> Any:
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: object = None) -> Any:
        answer = self._http.request(method, path, json=body).json()["value"]
        if isinstance(answer, dict) and "stacktrace" in answer:
            raise AssertionError(f"{path}: {answer['error']}: {answer['message']}")
        return answer


def _found(css: str, text: str) -> str:
    """JavaScript for the first match with the text."""
    matches = f"[...document.querySelectorAll({json.dumps(css)})]"
    return f"{matches}.find((e) => e.textContent.includes({json.dumps(text)}))"


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """profile: an empty folder."""
    port = free_port()
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _is_ready(url), 20, "chromedriver answers")
        chrome = {
            "binary": shutil.which("chromium"),
            "args": [*OPTIONS, f"--user-data-dir={profile}"],
        }
        wanted = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
        body = {"capabilities": {"alwaysMatch": wanted}}
        made = httpx.post(f"{url}/session", json=body, timeout=HANG_S).json()["value"]
        session = f"{url}/session/{made['sessionId']}"
        with httpx.Client(base_url=session, timeout=HANG_S) as http:
            yield Browser(http)
        httpx.delete(session, timeout=HANG_S)
        time.sleep(0.2)  # it still writes its profile
    finally:
        driver.terminate()
        driver.wait()


def _is_ready(url: str) -> bool:
    try:
        return bool(httpx.get(f"{url}/status").json()["value"]["ready"])
    except httpx.TransportError:
        return False
