"""Triton model `engine`: input_ids -> a decoupled stream of output_ids.

The shell: it turns Triton requests into a runtime's jobs, and the runtime's tokens into Triton
responses. A request with `stop=true` ends the request of the same id, even if that one has not
arrived yet; a request with `lease=true` stays open, see leases.py; one with `blocks_after` is
answered with changes of the KV cache, see block_log.py.
"""

from __future__ import annotations

import asyncio  # noqa: F401  otherwise Triton's stub imports it during the first request
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

import metrics
import parent_watch
from leases import Leases
from metrics import MetricReporter
from port import FOREIGN_ANSWER, INVALID_PARAMETER, QUEUE_FULL, BadParameter, Job
from recent_ids import RecentIds
from request_tensors import (
    generation_input,
    lease_id,
    prompt_tokens,
    scalar,
    timeout_s,
    tokenized_for,
)
from response_writer import ResponseWriter, usable_cores
from runtimes import RUNTIMES

logger = logging.getLogger(__name__)


class TritonPythonModel:
    """One instance a model, because the runtime does the batching."""

    def initialize(self, args: dict[str, str]) -> None:
        self._parent_watch = parent_watch.start()
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config["parameters"].items()}
        artifacts = Path(args["model_repository"], parameters["artifacts_dir"])
        self._stopped_early = RecentIds()
        self._leases = Leases()
        self._writer = ResponseWriter(
            self._leases,
            cores=usable_cores(),
            wanted_a_core=float(parameters["responses_a_core"]),
            hold_s=float(parameters["hold_ms"]) / 1000,
        )
        self._most_unfinished = int(parameters["max_unfinished"])
        self._runtime = RUNTIMES[parameters["runtime"]](parameters, artifacts, self._die)
        self._reporter = MetricReporter(pb_utils, parameters["public_name"])
        metrics.add_all(self._reporter, self._writer, self._runtime.stats)
        metrics.add_nvidias(
            self._reporter, self._runtime.stats, args["model_name"], args["model_version"]
        )
        self._reporter.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            if scalar(request, "stop"):
                self._stop(request.request_id())
                request.get_response_sender().send(
                    flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
            elif scalar(request, "lease"):
                self._hold_lease(request)
            elif (position := scalar(request, "blocks_after")) is not None:
                self._report_blocks(request, position)
            else:
                self._start(request)

    def finalize(self) -> None:
        self._runtime.close()
        self._writer.close()
        self._reporter.close()

    def _start(self, request: Any) -> None:
        request_id = request.request_id()
        if self._writer.unfinished >= self._most_unfinished:
            self._writer.reject(request.get_response_sender(), QUEUE_FULL, self._queue_is_full())
            return
        if (answered := tokenized_for(request)) not in (None, request_id):
            self._writer.reject(
                request.get_response_sender(),
                FOREIGN_ANSWER,
                f"The tokenizer's answer for request {answered!r} was handed to this request. "
                "Restart Triton: until then, each of its answers goes to a later request.",
            )
            return
        lease = lease_id(request)
        stream = self._writer.open(request.get_response_sender(), prompt_tokens(request), lease)
        try:
            stream.end_after(timeout_s(request))
            job = Job(request_id, generation_input(request), stream)
        except BadParameter as error:
            stream.refuse(error.param, str(error))
            return
        if self._stopped_early.take(request_id) or self._leases.is_over(lease):
            stream.cancelled()
            return
        self._runtime.submit(job)

    def _hold_lease(self, request: Any) -> None:
        sender = request.get_response_sender()
        if (reason := self._leases.hold(request.request_id(), sender)) is not None:
            self._writer.reject(sender, INVALID_PARAMETER, reason)

    def _report_blocks(self, request: Any, position: int) -> None:
        log = self._runtime.blocks
        changes = [0, 0, 0] if log is None else log.changes_after(position)
        array = np.array([changes], dtype=np.uint64)
        request.get_response_sender().send(
            pb_utils.InferenceResponse([pb_utils.Tensor("blocks", array)]),
            flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
        )

    def _queue_is_full(self) -> str:
        return (
            f"The queue of this model is full: {self._most_unfinished} requests are running or "
            "waiting, and the engine accepts no more. Send the request again later."
        )

    def _stop(self, request_id: str) -> None:
        if request_id and not self._runtime.cancel(request_id):
            self._stopped_early.add(request_id)

    def _die(self, reason: str) -> None:
        """Ends the process, after the last responses, for a runtime that cannot recover.

        Triton then reports that the model is not ready, and its supervisor starts it again.
        """
        logger.critical("the engine ends: %s", reason)
        self._writer.close()
        os._exit(1)
