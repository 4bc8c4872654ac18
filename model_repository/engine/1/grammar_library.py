"""xgrammar without torch and transformers, which it imports and which our calls do not use.

With them the import takes 3 s of CPU time and 250 MB in every process that has guides; without
them it takes 0.4 s and 40 MB. tokenizer/1/grammar_library.py is a link to this file.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import ModuleType
from typing import Any

# The version whose use of torch and transformers is known: at import it needs their names only,
# for annotations, a constant and two base classes. Any other version gets the real modules.
KNOWN_VERSION = "0.2.8"
UNUSED = ("torch", "transformers")


def load_xgrammar() -> Any:
    """The module. Not for two threads at once."""
    with _no_collections():
        if version("xgrammar") == KNOWN_VERSION and not sys.modules.keys() & {"xgrammar", *UNUSED}:
            return _without_unused()
        return importlib.import_module("xgrammar")


class _Placeholder(ModuleType):
    """Has a class of any name, which takes any arguments and does nothing."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_, **__: None})


def _without_unused() -> Any:
    """Another library that imports torch later gets the real one."""
    try:
        sys.modules["torch"] = None  # type: ignore[assignment]  # tvm_ffi does without
        importlib.import_module("tvm_ffi")
        sys.modules.update({name: _Placeholder(name) for name in UNUSED})
        return importlib.import_module("xgrammar")
    finally:
        for name in UNUSED:
            sys.modules.pop(name, None)


@contextmanager
def _no_collections() -> Iterator[None]:
    """A full collection amid the import stops every thread for 100 ms, and so would later ones.

    So there is none, and what the import made is then left out of all collections to come.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
