"""Triton model `engine`: input_ids -> a decoupled stream of output_ids.

The shell: it turns Triton requests into jobs for a runtime and the runtime's tokens into Triton
responses. `stop=true` with a request id ends that request, also one that has not arrived yet;
`lease=true` is held open, see leases.
"""

from __future__ import annotations

import asyncio  # noqa: F401  Triton's stub imports it, at the first request if nobody has
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import metrics
import triton_python_backend_utils as pb_utils
from counters import Counters
from early_stops import EarlyStops
from leases import Leases
from outbox import Outbox
from port import INVALID_PARAMETER, QUEUE_FULL, BadParameter, Job, Runtime
from request_tensors import generation_input, lease, prompt_tokens, scalar, timeout_s

# How long a thread waits before it demands the GIL. The onnx runtime's decode loop gives it up for
# a fraction of a millisecond at a time, too short for a sleeping thread to take it: with Python's
# 5 ms the sending thread starved behind a small model, and a hundred tokens left at once.
GIL_PATIENCE_S = 0.00002

logger = logging.getLogger(__name__)

Died = Callable[[str], None]


def _onnx(parameters: dict[str, str], artifacts: Path, _: Died) -> Runtime:
    from onnx_runtime import OnnxRuntime

    sys.setswitchinterval(GIL_PATIENCE_S)
    return OnnxRuntime.load(artifacts, parameters)


def _scripted(parameters: dict[str, str], artifacts: Path, _: Died) -> Runtime:
    from scripted_runtime import ScriptedRuntime

    return ScriptedRuntime.load(artifacts)


def _tensorrt_llm(parameters: dict[str, str], artifacts: Path, died: Died) -> Runtime:
    from trtllm_runtime import TrtllmRuntime

    return TrtllmRuntime.load(artifacts, parameters, died)


RUNTIMES = {"onnx": _onnx, "scripted": _scripted, "tensorrt_llm": _tensorrt_llm}


class TritonPythonModel:
    """One instance a model; the runtime does its own batching."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config["parameters"].items()}
        artifacts = Path(args["model_repository"], parameters["artifacts_dir"])
        self._early_stops = EarlyStops()
        self._leases = Leases()
        self._outbox = Outbox(
            self._leases,
            responses_per_s=float(parameters["responses_per_s"]),
            hold_s=float(parameters["hold_ms"]) / 1000,
        )
        self._most_unfinished = int(parameters["max_unfinished"])
        self._runtime = RUNTIMES[parameters["runtime"]](parameters, artifacts, self._die)
        self._counters = Counters(pb_utils, parameters["public_name"])
        metrics.add_all(self._counters, self._outbox, self._runtime.stats)
        self._counters.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            if scalar(request, "stop"):
                self._stop(request.request_id())
                request.get_response_sender().send(
                    flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
            elif scalar(request, "lease"):
                self._hold(request)
            else:
                self._start(request)

    def finalize(self) -> None:
        self._runtime.close()
        self._outbox.close()
        self._counters.close()

    def _start(self, request: Any) -> None:
        request_id = request.request_id()
        if self._outbox.unfinished >= self._most_unfinished:
            self._outbox.reject(request.get_response_sender(), QUEUE_FULL, self._queue_is_full())
            return
        held_by = lease(request)
        stream = self._outbox.open(request.get_response_sender(), prompt_tokens(request), held_by)
        try:
            stream.end_after(timeout_s(request))
            job = Job(request_id, generation_input(request), stream)
        except BadParameter as error:
            stream.refuse(error.param, str(error))
            return
        if self._early_stops.take(request_id) or self._leases.is_over(held_by):
            stream.cancelled()
            return
        self._runtime.submit(job)

    def _hold(self, request: Any) -> None:
        sender = request.get_response_sender()
        if (reason := self._leases.hold(request.request_id(), sender)) is not None:
            self._outbox.reject(sender, INVALID_PARAMETER, reason)

    def _queue_is_full(self) -> str:
        return (
            f"The queue of this model is full: {self._most_unfinished} requests are at work or "
            "waiting, and no more are taken. Send the request again later."
        )

    def _stop(self, request_id: str) -> None:
        if request_id and not self._runtime.cancel(request_id):
            self._early_stops.add(request_id)

    def _die(self, reason: str) -> None:
        """A runtime that cannot go on takes the process with it, after the last responses.

        Triton then says that the model is not ready, and whoever watches the process starts anew.
        """
        logger.critical("the engine ends: %s", reason)
        self._outbox.close()
        os._exit(1)
