"""Imports run one way (DESIGN: the house); each foreign library has its one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = [
    {"proxy.domain"},
    {
        "proxy.access",
        "proxy.registry",
        "proxy.callers_text",
        "proxy.control_tokens",
        "proxy.comeback",
        "proxy.resending",
        "proxy.sandbox",
        "proxy.text",
        "proxy.start_gate",
        "proxy.stops",
        "proxy.time_limits",
        "proxy.timing",
        "proxy.infilling",
        "proxy.prompt_echo",
        "proxy.choice",
        "proxy.candidates",
        "proxy.parsing",
        "proxy.tools",
        "proxy.reasoning",
        "proxy.server_tools",
        "proxy.prompting",
        "proxy.preparation",
        "proxy.structured",
        "proxy.triton",
    },
    {"proxy.telemetry", "proxy.readiness", "proxy.generation", "proxy.service"},
    {"proxy.api"},
    {"proxy.app", "proxy.bounds", "proxy.misspelt", "proxy.policy", "proxy.settings"},
    {"proxy.launch"},
    {"proxy.cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ONLY_IN = {
    "fastapi": ("proxy.api", "proxy.app"),
    "starlette": ("proxy.api", "proxy.app"),
    "grpc": ("proxy.triton",),
    "hpack": ("proxy.triton.http2",),
    "tritonclient": ("proxy.triton", "build_engines.triton_models"),
    "httpx": ("proxy.server_tools",),
    "os": ("proxy.settings", "proxy.launch", "proxy.cli", "build_engines"),
}
DOMAIN_MAY = {
    *("proxy.domain", "__future__", "array", "bisect", "collections", "dataclasses", "enum"),
    *("io", "typing"),
}


def modules() -> list[tuple[str, set[str]]]:
    found = []
    for path in [*ROOT.glob("proxy/**/*.py"), *ROOT.glob("build_engines/**/*.py")]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found.append((name, imported(path)))
    return found


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rank(name: str) -> int | None:
    parts = name.split(".")
    return RANK.get(".".join(parts[:2]))


@pytest.mark.parametrize(
    ("module", "imports"), modules(), ids=lambda v: v if type(v) is str else ""
)
def test_a_module_imports_only_what_stands_below_or_beside_it(module, imports):
    for name in imports:
        root = name.split(".")[0]
        if module.startswith("build_engines"):
            assert root != "proxy", f"{module} imports {name}"
        mine, theirs = rank(module), rank(name)
        if mine is not None and theirs is not None:
            assert theirs <= mine, f"{module} imports {name}, which stands above it"
        if module.startswith("proxy.domain"):
            assert any(name == ok or name.startswith(f"{ok}.") for ok in DOMAIN_MAY), name
        if module.startswith("proxy.telemetry") and root == "proxy":
            assert name.startswith(("proxy.domain", "proxy.telemetry")), name
        if module.startswith("proxy.triton.http2"):
            assert root != "asyncio", f"{module} imports {name}: it does no I/O"
        if root in ONLY_IN:
            assert module.startswith(ONLY_IN[root]), f"{module} imports {name}"


def test_the_check_sees_the_tree():
    seen = dict(modules())
    assert "proxy.domain.delivery" in seen["proxy.service"]
    assert "grpc" in seen["proxy.triton.channel"]
