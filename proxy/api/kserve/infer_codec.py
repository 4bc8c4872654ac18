"""The body of an inference -> KserveRequest, and KserveResponse -> the answer. Both are JSON, and
behind it the binary data of tensors.

Pure, so that it may run in the sandbox.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from proxy.api.http.validation_errors import refusal
from proxy.api.kserve import elements
from proxy.api.kserve.elements import WrongElements
from proxy.domain.errors import InvalidRequest, unsupported
from proxy.domain.kserve import KserveRequest, KserveResponse, RequestedOutput, Tensor

MOST_TENSORS, MOST_DIMENSIONS, MOST_PARAMETERS = 256, 16, 64
BINARY_SIZE, BINARY, BINARY_OUTPUT = "binary_data_size", "binary_data", "binary_data_output"
# Memory regions belong to the client that registered them, and a caller could read another's.
# Names that begin with `triton_` are reserved, such as Triton's own for responses without data.
REFUSED = ("shared_memory_", "triton_")

Name = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=256)]
Value = bool | int | Annotated[float, Field(allow_inf_nan=False)] | str


def _int64(value: Any) -> Any:
    """Without this, pydantic would make an integer that is too large into a float."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("the integer does not fit into 64 bits")
    return value


Values = Annotated[
    dict[Name, Annotated[Value, BeforeValidator(_int64)]], Field(max_length=MOST_PARAMETERS)
]
Dimension = Annotated[int, Field(ge=0, le=2**31 - 1)]
Datatype = Annotated[str, StringConstraints(pattern=f"^({'|'.join(elements.DATATYPES)})$")]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class InputBody(Body):
    name: Name
    datatype: Datatype
    shape: Annotated[list[Dimension], Field(max_length=MOST_DIMENSIONS)]
    parameters: Values = {}
    data: list[Any] | None = None


class OutputBody(Body):
    name: Name
    parameters: Values = {}


class InferBody(Body):
    id: Annotated[str, Field(max_length=256)] = ""
    parameters: Values = {}
    inputs: Annotated[list[InputBody], Field(min_length=1, max_length=MOST_TENSORS)]
    outputs: Annotated[list[OutputBody], Field(max_length=MOST_TENSORS)] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedInfer:
    """request: for Triton. binary: outputs that the caller wants as binary data. is_all_binary:
    those that `outputs` of the body does not name.
    """

    request: KserveRequest
    binary: frozenset[str]
    is_all_binary: bool


def parse(head: bytes, tail: bytes) -> ParsedInfer:
    """head: the JSON. tail: the binary data of the inputs, one behind the other.

    Raises:
        InvalidRequest: the JSON is wrong, or an input's data does not fit its type and shape.
    """
    try:
        body = InferBody.model_validate_json(head.removeprefix(codecs.BOM_UTF8))
    except ValidationError as error:
        raise refusal(error, InferBody) from error
    inputs, start = [], 0
    for number, given in enumerate(body.inputs):
        param = f"inputs[{number}]"
        size = _binary_size(given, param, len(tail) - start)
        inputs.append(_tensor(given, tail[start : start + (size or 0)], size, param))
        start += size or 0
    if start != len(tail):
        raise _wrong(f"{len(tail) - start} bytes behind the JSON belong to no input", "inputs")
    return _parsed(body, tuple(inputs))


def _parsed(body: InferBody, inputs: tuple[Tensor, ...]) -> ParsedInfer:
    for number, output in enumerate(body.outputs):
        _check(output.parameters, f"outputs[{number}].parameters")
        _flag(output.parameters, BINARY, f"outputs[{number}].parameters")
    _check(body.parameters, "parameters")
    is_all_binary = _flag(body.parameters, BINARY_OUTPUT, "parameters")
    binary = {each.name for each in body.outputs if each.parameters.get(BINARY, is_all_binary)}
    request = KserveRequest(
        id=body.id,
        parameters=_without(body.parameters, BINARY_OUTPUT),
        inputs=inputs,
        outputs=tuple(
            RequestedOutput(name=each.name, parameters=_without(each.parameters, BINARY))
            for each in body.outputs
        ),
    )
    return ParsedInfer(request=request, binary=frozenset(binary), is_all_binary=is_all_binary)


def _tensor(given: InputBody, raw: bytes, size: int | None, param: str) -> Tensor:
    shape = tuple(given.shape)
    _check(given.parameters, f"{param}.parameters")
    if (given.data is None) == (size is None):
        raise _wrong(f"'{param}' needs either `data` or the parameter `{BINARY_SIZE}`", param)
    try:
        if given.data is not None:
            raw = elements.encoded(given.data, given.datatype, shape)
        else:
            elements.check(raw, given.datatype, shape)
    except WrongElements as error:
        raise _wrong(f"The input {given.name!r} {error}", param) from None
    return Tensor(
        name=given.name,
        datatype=given.datatype,
        shape=shape,
        data=raw,
        parameters=_without(given.parameters, BINARY_SIZE),
    )


def _binary_size(given: InputBody, param: str, left: int) -> int | None:
    size = given.parameters.get(BINARY_SIZE)
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= left:
        raise _wrong(
            f"'{param}.parameters.{BINARY_SIZE}' is {size!r}, but {left} bytes are left behind the "
            "JSON",
            f"{param}.parameters.{BINARY_SIZE}",
        )
    return size


def _check(parameters: dict[str, Value], param: str) -> None:
    for name in parameters:
        if name.startswith(REFUSED):
            raise unsupported(
                f"'{param}.{name}' is not supported: names of shared memory, and names that begin "
                "with triton_, are refused.",
                param=f"{param}.{name}",
            )


def _flag(parameters: dict[str, Value], name: str, param: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(f"'{param}.{name}' must be true or false", f"{param}.{name}")
    return value


def _without(parameters: dict[str, Value], name: str) -> dict[str, Value]:
    return {key: value for key, value in parameters.items() if key != name}


def _wrong(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(f"{message}.", param=param)


def head(response: KserveResponse, binary: frozenset[str]) -> bytes:
    """The JSON. binary: the outputs whose data follows it.

    Raises:
        InvalidRequest: JSON cannot have an output's elements.
    """
    body: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        body["id"] = response.id
    if response.parameters:
        body["parameters"] = dict(response.parameters)
    body["outputs"] = [_output(each, each.name in binary) for each in response.outputs]
    return orjson.dumps(body)


def _output(tensor: Tensor, is_binary: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.shape),
    }
    size = {BINARY_SIZE: len(tensor.data)} if is_binary else {}
    if parameters := {**tensor.parameters, **size}:
        described["parameters"] = parameters
    if not is_binary:
        try:
            described["data"] = elements.decoded(tensor.data, tensor.datatype, tensor.shape)
        except WrongElements as error:
            raise InvalidRequest(
                f"The output {tensor.name!r} {error} (the parameter `binary_data` of the output).",
                param="outputs",
            ) from None
    return described
