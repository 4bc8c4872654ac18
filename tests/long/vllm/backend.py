"""A real vLLM engine behind the tensors of NVIDIA's vLLM backend. Runs as backends/vllm/model.py.

The tensors, the errors and the order of events are those of triton-inference-server/vllm_backend at
8de0c14, which ran under the same tests.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image
from vllm import PoolingParams, SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, EmbeddingRequestOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import StatLoggerBase

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def values(request: Any, name: str) -> list[Any]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return [] if tensor is None else list(tensor.as_numpy().ravel())


def text(request: Any, name: str) -> str | None:
    return next((one.decode() for one in values(request, name)), None)


def flag(request: Any, name: str) -> bool:
    return any(values(request, name))


def strings(name: str, given: list[str]) -> Any:
    return pb_utils.Tensor(name, np.array([one.encode() for one in given], dtype=np.object_))


class TokenCounter(StatLoggerBase):
    """vLLM's own count of generated tokens, on Triton's metrics port."""

    def __init__(self, model: str) -> None:
        self._family = pb_utils.MetricFamily(
            name="vllm:generation_tokens_total",
            description="Number of generation tokens processed.",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        self._metric = self._family.Metric(labels={"model": model, "version": "1"})

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        if iteration_stats is not None and iteration_stats.num_generation_tokens:
            self._metric.increment(iteration_stats.num_generation_tokens)

    def log_engine_initialized(self) -> None:
        pass


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        folder = Path(pb_utils.get_model_dir())
        self._name = args["model_name"]
        self._counter = TokenCounter(self._name)
        loras = folder / "multi_lora.json"
        self._loras = json.loads(loras.read_text()) if loras.exists() else {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        made = self._started(json.loads((folder / "model.json").read_text()))
        self._engine, self._tasks = asyncio.run_coroutine_threadsafe(made, self._loop).result()

    async def _started(self, given: dict[str, Any]) -> tuple[AsyncLLM, tuple[str, ...]]:
        config = AsyncEngineArgs(**given).create_engine_config()
        engine = AsyncLLM.from_vllm_config(config, stat_loggers=[lambda *_: self._counter])
        return engine, await engine.get_supported_tasks()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            lora = json.loads(text(request, "sampling_parameters") or "{}").get("lora_name")
            if lora is not None and lora not in self._loras:
                known = f"is not supported, we currently support {[*self._loras]}"
                refuse(sender, f"LoRA {lora} {known}")
                continue
            asyncio.run_coroutine_threadsafe(self._answer(request, sender, lora), self._loop)

    async def _answer(self, request: Any, sender: Any, lora: str | None) -> None:
        identity = str(uuid.uuid4())
        asked = text(request, "embedding_request")
        task = "generate" if asked is None else "embed"
        try:
            switches = [name for name in OUTPUTS if flag(request, f"return_{name}")]
            if task not in self._tasks:
                raise ValueError(f"Model {self._name} does not support '{task}' request")
            if asked is not None:
                tensors = await self._embedded(json.loads(asked), identity)
                sender.send(pb_utils.InferenceResponse(output_tensors=tensors), flags=FINAL)
                return
            async for output in self._outputs(request, identity, lora):
                if sender.is_cancelled():
                    await self._engine.abort(identity)
                    refuse(sender, "Request was cancelled", is_cancelled=True)
                    return
                sender.send(response(output, switches), flags=FINAL if output.finished else 0)
        except Exception as error:  # any error is the request's
            pb_utils.Logger.log_error(f"{error!r} {error.__cause__!r}")
            refuse(sender, f"Error generating stream: {error}")

    async def _embedded(self, asked: dict[str, Any], identity: str) -> list[Any]:
        given, sizes = asked["input"], asked.get("pooling_params", {}).get("dimensions", [None])
        prompt = given if isinstance(given, str) else TokensPrompt(prompt_token_ids=given)
        parameters = PoolingParams(task="embed", dimensions=sizes[0])
        outputs = [one async for one in self._engine.encode(prompt, parameters, identity)]
        made = EmbeddingRequestOutput.from_base(outputs[-1])
        return [
            strings("text_output", [json.dumps(made.outputs.embedding)]),
            OUTPUTS["num_input_tokens"]("num_input_tokens", made),
        ]

    def _outputs(
        self, request: Any, identity: str, lora: str | None
    ) -> AsyncIterator[RequestOutput]:
        if not flag(request, "stream") or values(request, "exclude_input_in_output") == [0]:
            raise NotImplementedError("the proxy streams, and wants no prompt before the answer")
        prompt: Any = text(request, "text_input")
        if images := values(request, "image"):
            decoded = [Image.open(io.BytesIO(base64.b64decode(one))) for one in images]
            prompt = {"prompt": prompt, "multi_modal_data": {"image": decoded}}
        number = 0 if lora is None else 1 + [*self._loras].index(lora)
        return self._engine.generate(
            prompt,
            sampling(text(request, "sampling_parameters") or "{}"),
            identity,
            lora_request=LoRARequest(lora, number, self._loras[lora]) if number else None,
        )

    def finalize(self) -> None:
        self._loop.call_soon_threadsafe(self._engine.shutdown)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def refuse(sender: Any, message: str, *, is_cancelled: bool = False) -> None:
    codes = pb_utils.TritonError
    error = codes(message, codes.CANCELLED if is_cancelled else codes.INTERNAL)
    sender.send(pb_utils.InferenceResponse(output_tensors=[], error=error), flags=FINAL)


def sampling(given: str) -> SamplingParams:
    """Raises AttributeError: upstream only logs what is wrong, and goes on without parameters."""
    fields = json.loads(given)
    fields.pop("lora_name", None)
    try:
        if guide := fields.pop("structured_outputs", None):
            fields["structured_outputs"] = StructuredOutputsParams(**json.loads(guide))
        return SamplingParams(**fields, output_kind=RequestOutputKind.DELTA)
    except Exception as error:
        raise AttributeError("'NoneType' object has no attribute 'lora_name'") from error


def log_probs(output: CompletionOutput) -> str:
    """Of each new token: itself first, then the most likely ones."""
    if output.logprobs is None:
        return "null"
    return json.dumps(
        [
            {
                token: {
                    "logprob": one.logprob,
                    "rank": one.rank,
                    "decoded_token": one.decoded_token,
                }
                for token, one in entries.items()
            }
            for entries in output.logprobs
        ]
    )


def numbers(name: str, given: Any, dtype: Any) -> Any:
    return pb_utils.Tensor(name, np.array(given, dtype=dtype))


# The number of the prompt's tokens has no dimension, as upstream.
OUTPUTS = {
    "finish_reason": lambda name, all_: strings(name, [str(all_.outputs[0].finish_reason)]),
    "cumulative_logprob": lambda name, all_: numbers(
        name, [all_.outputs[0].cumulative_logprob], np.float32
    ),
    "logprobs": lambda name, all_: strings(name, [log_probs(all_.outputs[0])]),
    "num_input_tokens": lambda name, all_: numbers(name, len(all_.prompt_token_ids), np.uint32),
    "num_output_tokens": lambda name, all_: numbers(
        name, [len(all_.outputs[0].token_ids)], np.uint32
    ),
}


def response(output: RequestOutput, switches: list[str]) -> Any:
    tensors = [strings("text_output", [output.outputs[0].text])]
    tensors += [OUTPUTS[name](name, output) for name in switches]
    return pb_utils.InferenceResponse(output_tensors=tensors)
