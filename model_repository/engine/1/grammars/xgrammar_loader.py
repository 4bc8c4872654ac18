"""Imports xgrammar without torch and transformers, which it imports and which our calls never use.

With them the import takes 3 s of CPU time and 250 MB in every process that has guides; without
them it takes 0.4 s and 40 MB.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

# xgrammar 0.1.32 to 0.2.9 need only their names, for annotations, a constant and base classes.
UNUSED = ("torch", "transformers")


def load_xgrammar() -> Any:
    """The xgrammar module. Two threads must not call it at once."""
    with _no_collections():
        if not sys.modules.keys() & {"xgrammar", *UNUSED}:
            try:
                return _without_unused()
            except Exception:  # a version that needs more of them
                for name in [one for one in sys.modules if one.split(".")[0] == "xgrammar"]:
                    del sys.modules[name]
        return importlib.import_module("xgrammar")


def grammar_compiler(info_file: Path) -> Any:
    """Its table may be of another version of xgrammar, which refuses all but its own."""
    xgrammar = load_xgrammar()
    fields = json.loads(info_file.read_text(encoding="utf-8"))
    info = xgrammar.TokenizerInfo(
        [token.encode("latin-1") for token in fields["decoded_vocab"]],
        xgrammar.VocabType.RAW,
        vocab_size=fields["vocab_size"],
        stop_token_ids=fields["stop_token_ids"],
    )
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


class _Placeholder(ModuleType):
    """Has a class of any name; the class accepts any arguments and does nothing."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_, **__: None})


def _without_unused() -> Any:
    """Removes the placeholders again, so that a later import of torch gets the real one."""
    try:
        sys.modules["torch"] = None  # type: ignore[assignment]  # tvm_ffi works without it
        importlib.import_module("tvm_ffi")
        sys.modules.update({name: _Placeholder(name) for name in UNUSED})
        return importlib.import_module("xgrammar")
    finally:
        for name in UNUSED:
            sys.modules.pop(name, None)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Runs the import without garbage collections, and exempts its objects from later ones.

    A full collection during the import would stop every thread for 100 ms, and so would each full
    collection after it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
