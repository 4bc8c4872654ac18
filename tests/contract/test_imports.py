"""Imports run one way (docs/architecture.md), and each foreign library has its one place."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# From the ground up. A module imports its own package, and packages that stand before it here.
ORDER = [
    "build_engines",
    "proxy.domain",
    "proxy.background",
    "proxy.settings",
    "proxy.telemetry",
    "proxy.language.structured",
    "proxy.state",
    "proxy.journal",
    "proxy.access",
    "proxy.server_tools",
    "proxy.triton",
    "proxy.pools",
    "proxy.scheduling",
    "proxy.language.syntax",
    "proxy.language.prompting",
    "proxy.models",
    "proxy.generation",
    "proxy.api",
    "proxy.app",
    "proxy.server",
    "proxy.operate.triton_server",
    "proxy.operate.doctor",
    "proxy.operate",
    "proxy.cli",
]
RANK = {name: rank for rank, name in enumerate(ORDER)}
NO_RANK = {"proxy", "proxy.language"}  # the version, which everybody may read; no code
ONLY_IN = {
    "fastapi": ("proxy.api", "proxy.app"),
    "starlette": ("proxy.api", "proxy.app"),
    "grpc": ("proxy.triton",),
    "redis": ("proxy.state",),
    "hpack": ("proxy.triton.http2",),
    "tritonclient": ("proxy.triton", "build_engines.triton_models"),
    "sqlalchemy": ("proxy.access.store",),
    "jwt": ("proxy.access.authentication",),
    "httpx": (
        "proxy.access.authentication",
        "proxy.pools",
        "proxy.server_tools",
        "proxy.operate.administration.remote",
        "proxy.operate.replay.sender",
    ),
    "lark": ("proxy.language.structured",),
    "opentelemetry": ("proxy.telemetry.traces", "proxy.app"),
    "uvicorn": ("proxy.server",),
    "websockets": ("proxy.server",),
    "httptools": ("proxy.server",),
    "os": (
        "build_engines",
        "proxy.settings",
        "proxy.access.sandbox_child",  # the priority of its process
        "proxy.state.objects",
        "proxy.server",
        "proxy.operate",
        "proxy.cli",
    ),
}
DOMAIN_MAY = {
    "proxy.domain",
    "__future__",
    "array",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "contextvars",
    "datetime",
    "fnmatch",
    "io",
    "ipaddress",
    "random",
    "time",
    "typing",
    "typing_extensions",
}


@functools.cache
def modules() -> list[tuple[str, set[str]]]:
    found = []
    for path in [*ROOT.glob("proxy/**/*.py"), *ROOT.glob("build_engines/**/*.py")]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found.append((name, imported(path)))
    return found


def imported(path: Path) -> set[str]:
    """Names of modules, and of what is imported from them; type imports count."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module or ''}"
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return names


@functools.cache
def package(name: str) -> str | None:
    """The longest entry of ORDER that holds the module or name; None without one."""
    parts = name.split(".")
    heads = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((head for head in heads if head in RANK), None)


def test_every_module_has_a_rank():
    names = {name for name, _ in modules()} - NO_RANK
    assert [name for name in names if not package(name)] == [], "give its package a place in ORDER"


def wrong_imports() -> Iterator[str]:
    for module, name in ((module, name) for module, names in modules() for name in names):
        root = name.split(".")[0]
        mine, theirs = package(module), package(name)
        if mine and theirs and mine != theirs and RANK[theirs] > RANK[mine]:
            yield f"{module} imports {name}, which stands above it"
        if module.startswith("proxy.domain") and not is_below(name, DOMAIN_MAY):
            yield f"{module} imports {name}"
        is_of_telemetry = module.startswith("proxy.telemetry") and root == "proxy"
        if is_of_telemetry and not name.startswith(("proxy.domain", "proxy.telemetry")):
            yield f"{module} imports {name}"
        if module.startswith("proxy.triton.http2") and root == "asyncio":
            yield f"{module} imports {name}: it does no I/O"
        if root in ONLY_IN and not module.startswith(ONLY_IN[root]):
            yield f"{module} imports {name}"


def is_below(name: str, packages: Iterable[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)


def test_a_module_imports_only_what_stands_below_it_or_in_its_own_package():
    assert list(wrong_imports()) == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {}
    found = dict(modules())
    for module, names in found.items():
        inner = names & found.keys()
        # `from package import module` needs the module; what the package itself has, it loads first
        packages = {name for name in inner if any(one.startswith(f"{name}.") for one in inner)}
        graph[module] = inner - packages - {module}
    assert len(list(TopologicalSorter(graph).static_order())) == len(found)
