"""docs/images/terminal.svg: `make serve` and a request, as a terminal shows them.

`python -m tests.docs.terminal` runs both on free ports and writes the picture.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess

from rich.console import Console
from rich.text import Text

from tests.docs.pages import ROOT
from tests.fixtures.stack import free_port

FILE = ROOT / "docs" / "images" / "terminal.svg"
READY = '"messages"'  # in the last line of a start: a request to try
PORTS = {"PORT": "9000", "TRITON_GRPC_PORT": "8001", "TRITON_METRICS_PORT": "8002"}
QUESTION = '{"model": "demo", "messages": [{"role": "user", "content": "Hello! Who are you?"}]}'
WEB_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the picture loads nothing


def session() -> list[tuple[str, str]]:
    """(command, what it printed), with the ports that a reader has."""
    own = {name: str(free_port()) for name in PORTS}
    environment = {**os.environ, **own}
    environment |= {"LOG_LEVEL": "error", "LOG_FORMAT": "text", "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        ["make", "serve"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    try:
        printed = []
        for line in server.stdout:
            printed.append(line)
            if READY in line:
                break
        asked = ["curl", "-s", f"http://127.0.0.1:{own['PORT']}/v1/chat/completions"]
        asked += ["-H", "Content-Type: application/json", "-d", QUESTION]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait()
    shown = "".join(printed)
    for name, port in PORTS.items():
        shown = shown.replace(f":{own[name]}", f":{port}")
    url, head = "http://127.0.0.1:9000/v1/chat/completions", "Content-Type: application/json"
    return [("make serve", shown), (f"curl {url} -H '{head}' \\\n    -d '{QUESTION}'", answer)]


def picture(parts: list[tuple[str, str]]) -> str:
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    for command, printed in parts:
        console.print(Text(f"$ {command}", style="bold green"))
        console.print(Text(printed.rstrip() + "\n"))
    svg = console.export_svg(title="triton-openai")
    return WEB_FONTS.sub("", svg)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(picture(session()))
