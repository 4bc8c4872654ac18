"""For all tests: how long httpx waits, threads, certificates, what builds import, hypothesis'
examples, and what all folders share.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import multiprocessing
import os
from typing import Any

import fastapi.routing
import httpx._transports.default
import httpx2._transports.default  # of openai
from httpx._config import DEFAULT_TIMEOUT_CONFIG

from tests.fixtures.examples import register_profiles
from tests.fixtures.stack import HANG_S

pytest_plugins = [
    "tests.fixtures.process_reaper",
    "tests.fixtures.worker_groups",
    "tests.fixtures.running",
    "tests.fixtures.embedding_server",
    "tests.fixtures.log_search",
]

# A busy machine may take longer to answer than httpx waits by itself, 5 s.
for phase in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, phase, HANG_S)

# Each test has one core: threads of torch and OpenBLAS that wait for each other hold up the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Certificates are loaded once: that takes longer than all the rest of a request.
for transports in (httpx._transports.default, httpx2._transports.default):
    transports.create_ssl_context = functools.cache(transports.create_ssl_context)

# So is what FastAPI finds out about each route: two thousand tests make an application each.
fastapi.routing.create_model_field = functools.cache(fastapi.routing.create_model_field)
_described: dict[Any, Any] = {}
_describe = fastapi.routing.get_dependant


def _dependant(*, path: str, call: Any, **options: Any) -> Any:
    key = path, getattr(call, "__code__", call)
    if key not in _described:
        _described[key] = _describe(path=path, call=call, **options)
    return dataclasses.replace(_described[key], call=call)


fastapi.routing.get_dependant = _dependant

# What the steps of a build import, once: each of them runs in a child process.
multiprocessing.set_forkserver_preload(
    ["transformers.models.auto", "transformers.modeling_utils", "xgrammar", "onnx.reference"]
)

register_profiles()

# A sixth of a worker's CPU: each look through all that imports and collected tests have made.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
