"""uvicorn and websockets have what `uvicorn_private` lists, and we use nothing else of theirs.

When a new version fails here: read what it changed about each name, then change the list and the
modules that it mentions, and raise the series in pyproject.toml.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from uvicorn.protocols.http import httptools_impl

from triton_openai.proxy.api.bodies.bytes_in_flight import BytesInFlight
from triton_openai.proxy.http_server import (
    disconnects,
    lingering,
    protocols,
    uvicorn_private,
    uvicorn_server,
)

ROOT = Path(__file__).parents[3]
PACKAGE = "triton_openai.proxy.http_server"
FOREIGN = ("uvicorn", "websockets", "httptools")
PUBLIC = {"httptools.HttpParserUpgrade", "httptools.HttpRequestParser"}
# Other things of ours and of the standard library have these names, too.
COINCIDENCES = {"accept", "discard", "http", "load", "log_level", "run", "send"}
SOURCES = [
    pytest.param(ast.parse(path.read_text()), id=path.stem)
    for path in sorted((ROOT / "proxy/http_server").glob("*.py"))
    if path.stem not in ("__init__", "uvicorn_private")
]


def loaded(one: uvicorn_private.PrivateClass) -> type:
    return getattr(importlib.import_module(one.module), one.name)


def listed(one: uvicorn_private.PrivateClass) -> set[str]:
    return {name.partition("(")[0] for name in (*one.overridden, *one.used)}


def combined() -> dict[type, list[type]]:
    """uvicorn's class -> ours above it, as a running server has them."""
    limits = {"reader_timeout_s": 1.0}
    http = protocols.http(**limits, sender_timeout_s=1.0, body_timeout_s=1.0, most=1)
    socket = protocols.websockets(**limits, message_timeout_s=1.0, in_flight=BytesInFlight(1))
    found: dict[type, list[type]] = {}
    for cls in (http, socket, uvicorn_server._Server):
        base = next(one for one in cls.__mro__ if one.__module__.startswith("uvicorn"))
        found[base] = [one for one in cls.__mro__ if one.__module__.startswith(PACKAGE)]
        found[base] = [one for one in found[base] if one not in (http, socket)]
    return found


COMBINED = combined()


def parsed(thing: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


@cache
def assigned(cls: type) -> set[str]:
    """What a method of the class assigns to `self`."""
    return {
        node.attr
        for node in ast.walk(parsed(cls))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    }


@cache
def attributes(cls: type) -> set[str]:
    """Of the class and of those that it inherits from, within its package."""
    package = cls.__module__.partition(".")[0]
    classes = [one for one in cls.__mro__ if one.__module__.startswith(package)]
    own = (set(vars(one)) | set(inspect.get_annotations(one)) | assigned(one) for one in classes)
    return set().union(*own)


def used_of(tree: ast.AST, *objects: str) -> set[str]:
    """The attributes of expressions such as `self.transport`."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in objects
    }


@pytest.mark.parametrize("package", uvicorn_private.SERIES)
def test_the_installed_series_is_the_one_that_the_list_was_written_for(package):
    series = uvicorn_private.SERIES[package]
    project = (ROOT / "pyproject.toml").read_text()
    (line,) = (line for line in project.splitlines() if line.strip().startswith(f'"{package}'))
    pinned = Requirement(ast.literal_eval(line.strip().rstrip(",")))
    assert str(pinned.specifier) == f"~={series}.0", "pyproject.toml does not pin the series"
    installed = metadata.version(package)
    assert installed in pinned.specifier, f"{package} {installed} is installed, not {series}"


@pytest.mark.parametrize("one", uvicorn_private.CLASSES, ids=lambda one: one.name)
def test_each_listed_name_is_there_with_the_listed_parameters(one):
    cls = loaded(one)
    for text, why in {**one.overridden, **one.used}.items():
        name, _, parameters = text.partition("(")
        where = f"{one.module}.{one.name}.{text} ({why})"
        assert name in attributes(cls), f"{where} is gone"
        if parameters:
            found = list(inspect.signature(getattr(cls, name)).parameters)[1:]
            assert ", ".join(found) == parameters[:-1], f"{where} has other parameters: {found}"


@pytest.mark.parametrize("base", COMBINED, ids=lambda base: base.__name__)
def test_whatever_we_override_is_listed(base):
    known = {name.partition("(")[0] for name in entry(base).overridden}
    for cls in COMBINED[base]:
        overridden = {name for name, one in vars(cls).items() if inspect.isfunction(one)}
        assert overridden & attributes(base) <= known, (
            f"{cls.__name__} overrides what the list lacks"
        )


@pytest.mark.parametrize("base", COMBINED, ids=lambda base: base.__name__)
def test_whatever_our_classes_use_of_their_own_is_listed(base):
    for cls in COMBINED[base]:
        used = used_of(parsed(cls), "self", "super()") & attributes(base)
        assert used <= listed(entry(base)), f"{cls.__name__} uses what the list lacks"


@pytest.mark.parametrize("tree", SOURCES)
def test_whatever_we_use_of_other_objects_is_listed(tree):
    theirs = set().union(*(attributes(loaded(one)) for one in uvicorn_private.CLASSES))
    known = set().union(*map(listed, uvicorn_private.CLASSES))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "super()")
    }
    assert used & theirs <= known | COINCIDENCES, "uses what the list lacks"


@pytest.mark.parametrize("tree", SOURCES)
def test_whatever_we_import_is_listed(tree):
    known = {f"{one.module}.{one.name}" for one in uvicorn_private.CLASSES} | PUBLIC
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(FOREIGN):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            assert names <= known | set(uvicorn_private.IMPORTED)


@pytest.mark.parametrize("name", uvicorn_private.IMPORTED)
def test_each_listed_import_is_there(name):
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


def test_uvicorn_asks_no_more_of_a_transport_than_ours_have():
    cycle = parsed(httptools_impl.RequestResponseCycle)
    assert used_of(cycle, "self.transport") <= uvicorn_private.TRANSPORT_METHODS
    for ours in (lingering._Unread, disconnects.PartlySentHead):
        assert set(vars(ours)) >= uvicorn_private.TRANSPORT_METHODS


def entry(base: type) -> uvicorn_private.PrivateClass:
    return next(one for one in uvicorn_private.CLASSES if one.name == base.__name__)
