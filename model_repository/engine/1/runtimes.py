"""The runtimes by their name in models.yaml. A new runtime is a package and a row here.

Each loader imports its package, so that an engine needs only its own runtime's libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from port import Runtime

# How long a thread waits before it demands the GIL. The onnx runtime's decode loop releases it for
# a fraction of a millisecond at a time, too short for a sleeping thread to take it: with Python's
# default of 5 ms the writer thread starved next to a small model and sent a hundred tokens at once.
GIL_SWITCH_INTERVAL_S = 0.00002

# Ends the process for the given reason; called by a runtime that cannot recover.
Die = Callable[[str], None]
Loader = Callable[[dict[str, str], Path, Die], Runtime]


def _onnx(parameters: dict[str, str], artifacts: Path, _: Die) -> Runtime:
    from onnx_cpu.runtime import OnnxRuntime

    sys.setswitchinterval(GIL_SWITCH_INTERVAL_S)
    return OnnxRuntime.load(artifacts, parameters)


def _scripted(_: dict[str, str], artifacts: Path, __: Die) -> Runtime:
    from scripted.runtime import ScriptedRuntime

    return ScriptedRuntime.load(artifacts)


def _tensorrt_llm(parameters: dict[str, str], artifacts: Path, die: Die) -> Runtime:
    from trtllm import runtime

    return runtime.load(artifacts, parameters, die)


def _vllm(parameters: dict[str, str], artifacts: Path, die: Die) -> Runtime:
    from vllm_engine import runtime

    return runtime.load(artifacts, parameters, die)


RUNTIMES: Mapping[str, Loader] = {
    "onnx": _onnx,
    "scripted": _scripted,
    "tensorrt_llm": _tensorrt_llm,
    "vllm": _vllm,
}
