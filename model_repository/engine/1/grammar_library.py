"""xgrammar, imported at the first guide and in a thread of its own, while others go on decoding.

It brings torch and transformers: about two seconds, 200 MB and a million objects. What would hold
up the other threads for long is kept off the GIL (loading libtorch) or left out (collections).
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def load_xgrammar() -> Any:
    """The module. Not for two threads at once."""
    with _no_collections():
        _load_libtorch()
        import xgrammar

        return xgrammar


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


def _load_libtorch() -> None:
    """`import torch` holds the GIL while it loads its libraries; a call through ctypes does not.

    Where this fails, the import will load them, or say why it cannot.
    """
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return
    library = Path(torch.origin).parent / "lib" / "libtorch_python.so"
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    dlopen(os.fsencode(library), os.RTLD_NOW)
