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
READY = "Ctrl-C"  # in the last line of a start
QUESTION = '{"model": "demo", "messages": [{"role": "user", "content": "Hello! Who are you?"}]}'
WEB_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the picture loads nothing


def session() -> list[tuple[str, str]]:
    """(command, what it printed), with the ports that a reader has."""
    ports = {"PORT": free_port(), "TRITON_GRPC_PORT": free_port(), "TRITON_METRICS_PORT": free_port()}
    environment = {**os.environ, **{name: str(port) for name, port in ports.items()}}
    environment["LOG_LEVEL"] = "warning"
    server = subprocess.Popen(
        ["make", "serve"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    try:
        printed = []
        for line in server.stdout:
            printed.append(line)
            if READY in line:
                break
        asked = ["curl", "-s", f"http://127.0.0.1:{ports['PORT']}/v1/chat/completions"]
        asked += ["-H", "Content-Type: application/json", "-d", QUESTION]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
    shown = "".join(printed).replace(str(ports["PORT"]), "9000").replace(str(ROOT), "~/triton-openai")
    command = "curl http://127.0.0.1:9000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    return [("make serve", shown), (f"{command}    -d '{QUESTION}'", answer)]


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
