"""The real clients: how each is installed, configured and run, with a home of its own. Nothing of
theirs leaves this machine: they know no key, and find no way to another host.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tests.fixtures.pip_target import SDKS, installed
from tests.fixtures.stack import HANG_S

HERE = Path(__file__).parent
KEY = "the-key-of-an-agent-that-is-tested"
NOWHERE = "http://127.0.0.1:9"


class NotInstalled(Exception):
    """A registry cannot be reached, or node is missing. The message is a sentence."""


def node_packages() -> Path:
    """The folder of the programs, kept between runs, made anew for a new lock."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstalled("node and npm are not on this machine")
    folder, lock = SDKS / "agents_js", "package-lock.json"
    stamp = folder / "installed.json"
    wanted = (HERE / lock).read_bytes()
    if not stamp.exists() or stamp.read_bytes() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", lock):
            shutil.copy(HERE / name, folder)
        packages = folder / "node_modules"
        # not `npm ci`: some registries lack optional packages of other machines, which it demands
        _run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
        # Of all install scripts only these are wanted: they put the native program in its place.
        _run(["node", "install.cjs"], packages / "@anthropic-ai" / "claude-code")
        _run(["node", "postinstall.mjs"], packages / "opencode-ai")
        stamp.write_bytes(wanted)
    return folder / "node_modules" / ".bin"


def python_packages() -> Path:
    try:
        return installed(HERE / "agents.lock")
    except subprocess.CalledProcessError as error:
        raise NotInstalled(f"pip cannot install agents.lock: {error}") from error


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"{' '.join(command)} fails: {done.stderr[-500:]}")


class Client(ABC):
    """One client with its own home.

    shell, write: the names of its tools, and of their arguments. notes: what its model calls the
    tool of the MCP server; None where it has no MCP. before_notes: a call that must come first.
    """

    name: ClassVar[str]
    shell: ClassVar[tuple[str, str]]
    notes: ClassVar[str | None] = None
    before_notes: ClassVar[list[Any]] = []
    is_python: ClassVar[bool] = False
    takes_proxy: ClassVar[bool] = True  # it does not send what is for this machine through one

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        self.work = home / "work"
        self.work.mkdir(parents=True)
        self.note = home / "note.txt"
        self.server = [sys.executable, str(HERE / "notes_server.py"), str(self.note)]
        self.configure()

    def configure(self) -> None:  # noqa: B027 - some need no files
        """Writes its files of configuration."""

    @abstractmethod
    def command(self, prompt: str, *, resumes: bool) -> list[str]: ...

    def environment(self) -> Mapping[str, str]:
        return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{self.url}/v1"}

    def calls_shell(self, command: str) -> list[Any]:
        tool, argument = self.shell
        return [tool, {argument: command, **self.more_of_shell}]

    more_of_shell: ClassVar[dict[str, Any]] = {}

    def run(self, prompt: str, *, resumes: bool = False) -> str:
        """What it prints."""
        packages = python_packages() if self.is_python else node_packages()
        path = "/usr/bin:/bin" if self.is_python else f"{packages}:{_node()}:/usr/bin:/bin"
        done = subprocess.run(
            self.command(prompt, resumes=resumes),
            cwd=self.work,
            env={
                "HOME": str(self.home),
                "PATH": path,
                "LANG": "C.UTF-8",
                "TERM": "dumb",
                "NO_COLOR": "1",
                **({"HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"} if self.takes_proxy else {}),
                **({"PYTHONPATH": str(packages)} if self.is_python else {}),
                **self.environment(),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def write_json(self, path: str, value: Any) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))

    @property
    def mcp_servers(self) -> dict[str, Any]:
        return {"notes": {"command": self.server[0], "args": self.server[1:]}}


def _node() -> str:
    return os.path.dirname(shutil.which("node") or "")


class Codex(Client):
    name, shell, notes = "codex", ("exec_command", "cmd"), "mcp__notes__add"

    def configure(self) -> None:
        (self.home / ".codex").mkdir()
        (self.home / ".codex" / "config.toml").write_text(
            f'model = "demo"\nmodel_provider = "own"\n'
            f'[model_providers.own]\nname = "own"\nbase_url = "{self.url}/v1"\n'
            'wire_api = "responses"\nenv_key = "OWN_KEY"\n'
            f"[mcp_servers.notes]\ncommand = {json.dumps(self.server[0])}\n"
            f"args = {json.dumps(self.server[1:])}\n"
        )

    def environment(self) -> Mapping[str, str]:
        return {"OWN_KEY": KEY}

    def command(self, prompt: str, *, resumes: bool) -> list[str]:
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return ["codex", "exec", *options, *(["resume", "--last"] if resumes else []), prompt]


class ClaudeCode(Client):
    """Its model finds the tools of MCP servers with a search."""

    name, shell, notes = "claude-code", ("Bash", "command"), "mcp__notes__add"
    before_notes: ClassVar[list[Any]] = [["ToolSearch", {"query": "select:mcp__notes__add"}]]

    def environment(self) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "IS_SANDBOX": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def command(self, prompt: str, *, resumes: bool) -> list[str]:
        servers = json.dumps({"mcpServers": self.mcp_servers})
        options = ["--dangerously-skip-permissions", "--mcp-config", servers, "--strict-mcp-config"]
        return ["claude", *(["-c"] if resumes else []), "-p", prompt, "--model", "demo", *options]


class OpenCode(Client):
    name, shell, notes = "opencode", ("bash", "command"), "notes_add"
    more_of_shell: ClassVar[dict[str, Any]] = {"description": "runs it"}

    def configure(self) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "own",
            "options": {"baseURL": f"{self.url}/v1", "apiKey": KEY},
            "models": {"demo": {"name": "demo"}},
        }
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "mcp": {"notes": {"type": "local", "command": self.server}},
            "provider": {"own": provider},
        }
        self.write_json("work/opencode.json", settings)

    def environment(self) -> Mapping[str, str]:
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}

    def command(self, prompt: str, *, resumes: bool) -> list[str]:
        return ["opencode", "run", *(["-c"] if resumes else []), "--model", "own/demo", prompt]


class Pi(Client):
    name, shell = "pi", ("bash", "command")

    def configure(self) -> None:
        provider = {
            "baseUrl": f"{self.url}/v1",
            "api": "openai-completions",
            "apiKey": KEY,
            "models": [{"id": "demo"}],
        }
        self.write_json(".pi/agent/models.json", {"providers": {"own": provider}})

    def environment(self) -> Mapping[str, str]:
        return {"PI_OFFLINE": "1"}

    def command(self, prompt: str, *, resumes: bool) -> list[str]:
        options = ["--provider", "own", "--model", "demo"]
        return ["pi", *(["-c"] if resumes else []), "-p", *options, prompt]


class QwenCode(Client):
    name, shell, notes = "qwen-code", ("run_shell_command", "command"), "mcp__notes__add"
    more_of_shell: ClassVar[dict[str, Any]] = {"is_background": False}
    takes_proxy = False

    def configure(self) -> None:
        self.write_json(".qwen/settings.json", {"mcpServers": self.mcp_servers})

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "OPENAI_MODEL": "demo", "QWEN_TELEMETRY_ENABLED": "false"}

    def command(self, prompt: str, *, resumes: bool) -> list[str]:
        resumed = ["--continue"] if resumes else []
        return ["qwen", "--yolo", "--auth-type", "openai", *resumed, "-p", prompt]


class PythonClient(Client):
    """Both are built on LiteLLM, which would look for prices elsewhere."""

    is_python = True

    def environment(self) -> Mapping[str, str]:
        return {
            "OPENAI_API_BASE": f"{self.url}/v1",
            "OPENAI_API_KEY": KEY,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
        }


class Aider(PythonClient):
    """It has no tools: its model writes whole files, which aider puts into their places."""

    name, shell = "aider", ("", "")

    def configure(self) -> None:
        self.write_json(".aider/caches/model_prices_and_context_window.json", {})

    def command(self, prompt: str, *, resumes: bool) -> list[str]:
        quiet = ["--no-git", "--no-check-update", "--analytics-disable", "--no-show-model-warnings"]
        resumed = ["--restore-chat-history"] if resumes else []
        task = ["--yes-always", "--edit-format", "whole", "--message", prompt]
        return [sys.executable, "-m", "aider", "--model", "openai/demo", *quiet, *resumed, *task]


class MiniSweAgent(PythonClient):
    """It resumes nothing. It ends by a command of the shell."""

    name, shell = "mini-swe-agent", ("bash", "command")

    def command(self, prompt: str, *, resumes: bool) -> list[str]:
        options = ["-m", "openai/demo", "-y", "--exit-immediately", "-o", str(self.home / "t.json")]
        return [sys.executable, "-m", "minisweagent.run.mini", *options, "-t", prompt]


CLIENTS = (Codex, ClaudeCode, OpenCode, Pi, QwenCode, Aider, MiniSweAgent)
