"""KserveResponse -> the answer's JSON, and behind it the binary data of outputs.

Pure, so that it may run in the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from proxy.api.kserve import elements
from proxy.api.kserve.elements import WrongElements
from proxy.api.kserve.infer_body import BINARY_SIZE
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.kserve import KserveResponse, Tensor


def head(response: KserveResponse, binary: frozenset[str]) -> bytes:
    """The JSON. binary: the outputs whose data follows it.

    Raises:
        InvalidRequest: JSON cannot have an output's elements.
    """
    body: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        body["id"] = response.id
    body |= _given("parameters", response.parameters)
    body["outputs"] = [_output(each, each.name in binary) for each in response.outputs]
    return orjson.dumps(body)


def _output(tensor: Tensor, is_binary: bool) -> dict[str, Any]:
    size = {BINARY_SIZE: len(tensor.data)} if is_binary else {}
    described: dict[str, Any] = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.shape),
        **_given("parameters", {**tensor.parameters, **size}),
    }
    if is_binary:
        return described
    try:
        return {**described, "data": elements.decoded(tensor.data, tensor.datatype, tensor.shape)}
    except WrongElements as error:
        raise InvalidRequest(
            f"The output {tensor.name!r} {error} (the parameter `binary_data` of the output).",
            code=ErrorCode.INVALID_PARAMETER,
            param="outputs",
        ) from None


def _given(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: dict(parameters)} if parameters else {}
