"""Triton model `engine`: input_ids -> a decoupled stream of output_ids.

The shell: it turns Triton requests into jobs for a runtime and the runtime's tokens into Triton
responses. `stop=true` with a request id ends that request, also one that has not arrived yet.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from counters import Counters, Value
from early_stops import EarlyStops
from port import FinishReason, GenerationInput, Job, Runtime

ASK_EVERY_S = 0.05
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def _onnx(parameters: dict[str, str], artifacts: Path) -> Runtime:
    from onnx_runtime import OnnxRuntime

    return OnnxRuntime.load(artifacts, parameters)


RUNTIMES = {"onnx": _onnx}


class TritonPythonModel:
    """One instance a model; the runtime does its own batching."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config["parameters"].items()}
        artifacts = Path(args["model_repository"], parameters["artifacts_dir"])
        self._counters = Counters(pb_utils, config["name"])
        self._early_stops = EarlyStops()
        self._runtime = RUNTIMES[parameters["runtime"]](parameters, artifacts)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            if _scalar(request, "stop"):
                self._stop(request.request_id())
                sender.send(flags=FINAL)
            else:
                self._start(request, sender)

    def finalize(self) -> None:
        self._runtime.close()
        self._counters.close()

    def _start(self, request: Any, sender: Any) -> None:
        generation = _generation_input(request)
        request_id = request.request_id()
        sink = _TritonSink(sender, len(generation.prompt_ids), self._counters)
        if self._early_stops.take(request_id):
            sink.cancelled()
            return
        self._runtime.submit(Job(request_id, generation, sink))

    def _stop(self, request_id: str) -> None:
        if request_id and not self._runtime.cancel(request_id):
            self._early_stops.add(request_id)


class _TritonSink:
    """One request's responses. The prompt's token count goes out with the first."""

    def __init__(self, sender: Any, prompt_tokens: int, counters: Counters) -> None:
        self._sender = sender
        self._prompt_tokens: int | None = prompt_tokens
        self._counters = counters
        self._ask_again_at = 0.0
        counters.prompt_tokens.add(prompt_tokens)
        counters.unfinished.add(1)

    def tokens(self, ids: list[int], finish: FinishReason | None) -> None:
        tensors = [pb_utils.Tensor("output_ids", np.array([[ids]], dtype=np.int32))]
        if self._prompt_tokens is not None:
            count = np.array([[self._prompt_tokens]], dtype=np.int32)
            tensors.append(pb_utils.Tensor("num_input_tokens", count))
            self._prompt_tokens = None
        if finish is not None:
            reason = np.array([[finish.encode()]], dtype=np.object_)
            tensors.append(pb_utils.Tensor("finish_reason", reason))
        self._counters.generated_tokens.add(len(ids))
        response = pb_utils.InferenceResponse(tensors)
        if finish is None:
            self._sender.send(response)
        else:
            self._sender.send(response, flags=FINAL)
            self._end(self._counters.finished)

    def fail(self, message: str) -> None:
        error = pb_utils.TritonError(message, pb_utils.TritonError.INTERNAL)
        self._sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
        self._end(self._counters.failed)

    def cancelled(self) -> None:
        self._sender.send(flags=FINAL)
        self._end(self._counters.cancelled)

    def is_abandoned(self) -> bool:
        """Asking Triton is a round trip to its process, so it is done 20 times a second."""
        now = time.monotonic()
        if now < self._ask_again_at:
            return False
        self._ask_again_at = now + ASK_EVERY_S
        return bool(self._sender.is_cancelled())

    def _end(self, counter: Value) -> None:
        counter.add(1)
        self._counters.unfinished.add(-1)


def _generation_input(request: Any) -> GenerationInput:
    temperature = _scalar(request, "temperature")
    top_p = _scalar(request, "runtime_top_p")
    seed = _scalar(request, "seed")
    ids = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy().ravel()
    return GenerationInput(
        prompt_ids=ids.tolist(),
        max_tokens=int(_scalar(request, "request_output_len")),
        temperature=1.0 if temperature is None else float(temperature),
        top_p=1.0 if top_p is None else float(top_p),
        seed=None if seed is None else int(seed),
    )


def _scalar(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().ravel()[0]
