"""What a dialect is, and what those of other people's models have in common."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tritonclient.grpc import model_config_pb2, service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest, ProxyError
from proxy.domain.output import FinishReason
from proxy.domain.request import SAMPLING
from proxy.triton import codec
from proxy.triton.tensors import Value

Read = Callable[[service_pb2.ModelInferResponse], codec.StreamMessage]
Values = Iterable[tuple[str, Value | None]]
_WHOLE = frozenset({"INT32", "INT64", "UINT32", "UINT64"})
# Our datatype -> those of a tensor that can take its values.
_ALIKE = {"INT32": _WHOLE, "UINT64": _WHOLE, "FP32": frozenset({"FP32", "FP64"})}
# Field of Sampling, or max_tokens -> the same of its own.
_FITTING = {
    name: _ALIKE.get(datatype, frozenset({datatype}))
    for name, datatype in (*SAMPLING.items(), ("max_tokens", "INT32"))
}
GUIDED_BACKEND = "guided_decoding_backend"  # a parameter of the C++ engine model


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a Triton model's reported configuration says. Tensors: name -> datatype.

    stopped_by: of an ensemble, the step's model that takes a stop. has_guides: and has xgrammar.
    """

    name: str
    backend: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    required: frozenset[str]
    parameters: Mapping[str, str]
    is_decoupled: bool
    has_batches: bool
    stopped_by: str | None
    has_guides: bool

    @classmethod
    def of(
        cls,
        config: model_config_pb2.ModelConfig,
        all_configs: Mapping[str, model_config_pb2.ModelConfig],
    ) -> Declared:
        names = [step.model_name for step in config.ensemble_scheduling.step]
        steps = [all_configs[name] for name in names if name in all_configs]
        engine = next((one for one in steps if any(i.name == "stop" for i in one.input)), None)
        guides = "" if engine is None else engine.parameters[GUIDED_BACKEND].string_value
        return cls(
            name=config.name,
            backend=config.backend or config.platform,
            inputs={one.name: _datatype(one.data_type) for one in config.input},
            outputs={one.name: _datatype(one.data_type) for one in config.output},
            required=frozenset(one.name for one in config.input if not one.optional),
            parameters={key: one.string_value for key, one in config.parameters.items()},
            is_decoupled=any(one.model_transaction_policy.decoupled for one in (config, *steps)),
            has_batches=config.max_batch_size > 0,
            stopped_by=None if engine is None else engine.name,
            has_guides=guides == "xgrammar",
        )

    @property
    def is_cumulative(self) -> bool:
        """Whether a BLS model repeats the text so far."""
        return self.is_decoupled and self.parameters.get("accumulate_tokens", "").lower() == "true"

    def takes(self, **tensors: str) -> bool:
        """Whether all of these are its inputs, with these datatypes."""
        return all(self.inputs.get(name) == datatype for name, datatype in tensors.items())

    def gives(self, **tensors: str) -> bool:
        return all(self.outputs.get(name) == datatype for name, datatype in tensors.items())


def fitting(fields: Mapping[str, str], inputs: Mapping[str, str]) -> frozenset[str]:
    """Those of the fields whose tensor can take them. fields: field -> tensor."""
    return frozenset(one for one, name in fields.items() if inputs.get(name) in _FITTING[one])


def _datatype(number: int) -> str:
    name = model_config_pb2.DataType.Name(number).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


class Dialect(Protocol):
    """One for each Kind."""

    def capabilities(self, declared: Declared) -> Collection[str] | None:
        """What a model with these tensors can take; None: it is not of this kind."""
        ...

    def notes(self, declared: Declared) -> list[str]:
        """What the model cannot do as it is set up, and what would change that."""
        ...

    def encode(self, request: EngineRequest) -> service_pb2.ModelInferRequest: ...

    def reader(self, request: EngineRequest, prompt_tokens: int | None) -> Read:
        """For the responses of one stream. prompt_tokens: None where nobody has counted them."""
        ...

    def stop(self, request: EngineRequest) -> service_pb2.ModelInferRequest | None:
        """The message that stops the request; None: its call is cancelled."""
        ...

    def error(self, message: str, request: EngineRequest) -> ProxyError | None:
        """What a message in a stream means; None: what it means in any stream."""
        ...


def without_inputs(request: EngineRequest) -> service_pb2.ModelInferRequest:
    model = request.model
    message = service_pb2.ModelInferRequest(model_name=model.triton_model, id=request.id)
    if model.version is not None:
        message.model_version = str(model.version)
    return message


def infer_request(request: EngineRequest, values: Values) -> service_pb2.ModelInferRequest:
    """The request with the inputs that have a value and that the model declares."""
    adopted = request.model.facts.adopted
    assert adopted is not None
    message = without_inputs(request)
    batch = (1,) if adopted.has_batches else ()
    for name, value in values:
        datatype = adopted.inputs.get(name)
        if value is None or datatype not in codec.KNOWN_DATATYPES:
            continue
        try:
            raw, elements = codec.raw_elements(datatype, value)
        except struct.error as error:
            fields = {} if adopted.tensors is None else adopted.tensors.inputs
            param = next((one for one, tensor in fields.items() if tensor == name), name)
            reason = f"{value!r} does not fit into the model's {datatype} tensor {name!r}."
            raise InvalidRequest(reason, param=param) from error
        message.inputs.add(name=name, datatype=datatype, shape=(*batch, elements))
        message.raw_input_contents.append(raw)
    return codec.streamed(message)


def raw_outputs(response: service_pb2.ModelInferResponse) -> dict[str, bytes]:
    """Raises MalformedResponse."""
    outputs, contents = response.outputs, response.raw_output_contents
    if len(outputs) != len(contents):
        raise codec.MalformedResponse(f"{len(outputs)} outputs with {len(contents)} contents")
    return {output.name: raw for output, raw in zip(outputs, contents, strict=True)}


def one_text(raw: bytes | None) -> bytes:
    """The only element of a BYTES tensor. Raises MalformedResponse."""
    if raw is None or len(raw) < 4:
        return b""
    if int.from_bytes(raw[:4], "little") == len(raw) - 4:
        return raw[4:]
    return b"".join(codec.bytes_elements(raw)[:1])


def tokens_of(text: bytes, count: int) -> tuple[bytes, ...]:
    """A delta's token_bytes, where only the text of all its tokens is known."""
    count = max(count, bool(text))
    return (text, *[b""] * (count - 1)) if count else ()


# What engines call the ends of an answer; others, such as "abort", are failures.
FINISHES = {
    b"stop": FinishReason.STOP,
    b"length": FinishReason.LENGTH,
    b"end_id": FinishReason.STOP,
    b"stop_words": FinishReason.STOP,
}
RUNNING = (b"", b"None", b"not_finished")


def finish_of(text: bytes) -> FinishReason | None:
    """Why the answer has ended; None: it has not. Raises MalformedResponse."""
    if text in RUNNING:
        return None
    if (found := FINISHES.get(text)) is None:
        raise codec.MalformedResponse(f"unknown finish reason {text!r}")
    return found


def too_long(message: str) -> InvalidRequest:
    return InvalidRequest(message, code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt")
