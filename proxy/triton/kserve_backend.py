"""Unary inference on any model of one Triton. Implements domain.kserve.KserveBackend."""

from __future__ import annotations

import re
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from proxy.domain.errors import (
    InvalidRequest,
    ModelUnavailable,
    ProxyError,
    UnknownModel,
    echoed,
    unsupported,
)
from proxy.domain.kserve import (
    KserveRequest,
    KserveResponse,
    Metadata,
    Parameter,
    Parameters,
    Tensor,
)
from proxy.triton.client import TritonClient
from proxy.triton.errors import error_of_call, malformed

CALL_TIMEOUT_S = 5.0
LONGEST_REFUSAL = 2_000  # characters
DECOUPLED = re.compile(r"decoupled", re.IGNORECASE)
UNKNOWN = re.compile(r"unknown model|not found", re.IGNORECASE)
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)


class TritonKserve:
    """Calls on the client's channel."""

    def __init__(self, client: TritonClient) -> None:
        self._client = client

    async def infer(
        self, model: str, version: str, request: KserveRequest, *, timeout_s: float
    ) -> KserveResponse:
        if any(tensor.shape[:1] == (0,) for tensor in request.inputs):
            await self._check_batch(model, version)
        message = _encoded(model, version, request)
        answer = await self._call("ModelInfer", message, model, timeout_s)
        if len(answer.raw_output_contents) != len(answer.outputs):
            raise malformed(f"{len(answer.outputs)} outputs without as many raw contents")
        return _decoded(answer)

    async def model_metadata(self, model: str, version: str) -> Metadata:
        request = service_pb2.ModelMetadataRequest(name=model, version=version)
        found = await self._call("ModelMetadata", request, model)
        return {
            "name": found.name,
            "versions": list(found.versions),
            "platform": found.platform,
            "inputs": [_tensor_metadata(one) for one in found.inputs],
            "outputs": [_tensor_metadata(one) for one in found.outputs],
        }

    async def is_model_ready(self, model: str, version: str) -> bool:
        request = service_pb2.ModelReadyRequest(name=model, version=version)
        return bool((await self._call("ModelReady", request, model)).ready)

    async def is_server_ready(self) -> bool:
        try:
            request = service_pb2.ServerReadyRequest()
            return bool((await self._call("ServerReady", request, "")).ready)
        except ModelUnavailable:
            return False

    async def server_metadata(self) -> Metadata:
        found = await self._call("ServerMetadata", service_pb2.ServerMetadataRequest(), "")
        extensions = list(found.extensions)
        return {"name": found.name, "version": found.version, "extensions": extensions}

    async def _check_batch(self, model: str, version: str) -> None:
        """Raises InvalidRequest: the model batches. Triton never answers a batch of nothing."""
        request = service_pb2.ModelConfigRequest(name=model, version=version)
        if (await self._call("ModelConfig", request, model)).config.max_batch_size > 0:
            raise InvalidRequest(
                f"The shape of an input begins with 0, an empty batch: the model {echoed(model)} "
                "batches its requests, so the first number of a shape must be 1 or more.",
                param="inputs",
            )

    async def _call(
        self, method: str, request: Any, model: str, timeout_s: float = CALL_TIMEOUT_S
    ) -> Any:
        try:
            return await getattr(self._client.stub, method)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _error(error, model) from error


def _error(error: grpc.aio.AioRpcError, model: str) -> ProxyError:
    """Triton's words about a request are for its sender, who names tensors in it."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNIMPLEMENTED and DECOUPLED.search(details):
        return unsupported(
            f"The model {echoed(model)} is decoupled: it answers one request with any number of "
            "responses, which need a stream. /v2 has no streams: call this Triton's gRPC port.",
            param="model",
        )
    if code is grpc.StatusCode.NOT_FOUND or UNKNOWN.search(details):
        return UnknownModel(model)
    if code in REFUSALS:
        message = details[:LONGEST_REFUSAL]
        return InvalidRequest(message, param=None)
    return error_of_call(error)


def _encoded(model: str, version: str, request: KserveRequest) -> Any:
    message = service_pb2.ModelInferRequest(model_name=model, model_version=version, id=request.id)
    _set(message.parameters, request.parameters)
    for tensor in request.inputs:
        made = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        _set(made.parameters, tensor.parameters)
        message.raw_input_contents.append(tensor.data)
    for output in request.outputs:
        _set(message.outputs.add(name=output.name).parameters, output.parameters)
    return message


def _set(parameters: Any, given: Parameters) -> None:
    for name, value in given.items():
        match value:
            case bool():
                parameters[name].bool_param = value
            case int():
                parameters[name].int64_param = value
            case float():
                parameters[name].double_param = value
            case str():
                parameters[name].string_param = value


def _decoded(answer: Any) -> KserveResponse:
    return KserveResponse(
        model=answer.model_name,
        version=answer.model_version,
        id=answer.id,
        parameters=_parameters(answer.parameters),
        outputs=tuple(
            Tensor(
                name=output.name,
                datatype=output.datatype,
                shape=tuple(output.shape),
                data=raw,
                parameters=_parameters(output.parameters),
            )
            for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
        ),
    )


def _parameters(found: Any) -> dict[str, Parameter]:
    chosen = ((name, value, value.WhichOneof("parameter_choice")) for name, value in found.items())
    return {name: getattr(value, kind) for name, value, kind in chosen if kind is not None}


def _tensor_metadata(found: Any) -> Metadata:
    return {"name": found.name, "datatype": found.datatype, "shape": list(found.shape)}
