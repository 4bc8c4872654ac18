"""EngineRequest -> protobuf -> TokenDelta. Pure: no I/O, no grpc."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tritonclient.grpc import service_pb2

from proxy.domain import plain_spans
from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard
from proxy.domain.output import (
    Alternative,
    BlockChanges,
    EngineTimes,
    FinishReason,
    TokenDelta,
    TokenLogProb,
)
from proxy.triton import tensors
from proxy.triton.tensors import Tensor, Value

UINT64_MASK = 2**64 - 1
_FINAL = "triton_final_response"
_LENGTH = struct.Struct("<I")
_FORMATS = {"INT32": "<%di", "UINT64": "<%dQ", "FP32": "<%df", "BOOL": "<%d?"}
# of models of others only
_FORMATS |= {"INT64": "<%dq", "UINT32": "<%dI", "FP64": "<%dd"}
KNOWN_DATATYPES = frozenset({"BYTES", *_FORMATS})


class MalformedResponse(ValueError):
    """Triton sent something that violates the tensor contract."""


class ForeignReceipt(ValueError):
    """Triton handed us the detokenizer's answer for another response."""


@dataclass(slots=True)
class StreamMessage:
    """One response of a stream. The last one `is_final`, and may lack a delta."""

    delta: TokenDelta | None
    is_final: bool


def encode(request: EngineRequest) -> service_pb2.ModelInferRequest:
    """The request to the ensemble: the inputs that have a value, and the outputs that we read."""
    model = request.model
    head = _head(model.triton_model, model.version, tensors.wanted_outputs(request))
    message = service_pb2.ModelInferRequest.FromString(head)
    message.id = request.id
    _add_inputs(message, tensors.INPUTS, tensors.input_values(request))
    if request.constraint is not None:  # see client.GuideRetries
        message.parameters["guide_may_be_pending"].bool_param = True
    return message


@lru_cache(maxsize=256)
def _head(model: str, version: int | None, outputs: tuple[str, ...]) -> bytes:
    """What the requests to a model for the same outputs have in common, in its wire format."""
    message = service_pb2.ModelInferRequest(model_name=model)
    if version is not None:
        message.model_version = str(version)
    for name in outputs:
        message.outputs.add(name=name)
    return bytes(streamed(message).SerializeToString())


def encode_stop(request: EngineRequest) -> service_pb2.ModelInferRequest:
    """The message that stops `request` in its engine."""
    facts = request.model.facts
    return stop_message(facts.engine_model, request.id, tensors.stop_inputs_of(facts))


def stop_message(
    engine: str, request_id: str, inputs: Sequence[Tensor]
) -> service_pb2.ModelInferRequest:
    message = service_pb2.ModelInferRequest(model_name=engine, id=request_id)
    _add_inputs(message, inputs, tensors.CONTROL_VALUES)
    return streamed(message)


def encode_lease(request: EngineRequest, lease: str) -> service_pb2.ModelInferRequest:
    """The message that holds a lease at the engine of `request`, see streams.leases."""
    facts = request.model.facts
    message = service_pb2.ModelInferRequest(model_name=facts.engine_model, id=lease)
    _add_inputs(message, tensors.LEASE_INPUTS, tensors.CONTROL_VALUES)
    return streamed(message)


def encode_blocks_question(engine: str, position: int) -> service_pb2.ModelInferRequest:
    """The message that asks an engine model what has changed in its KV cache."""
    message = service_pb2.ModelInferRequest(model_name=engine)
    values = {**tensors.CONTROL_VALUES, "blocks_after": (position,)}
    _add_inputs(message, tensors.BLOCKS_INPUTS, values)
    return streamed(message)


def decode_block_changes(response: service_pb2.ModelInferResponse) -> BlockChanges | None:
    """None for the final response, which has none. Raises MalformedResponse."""
    if not response.raw_output_contents:
        return None
    numbers = _numbers("Q", response.raw_output_contents[0])
    if len(numbers) < 3:
        raise MalformedResponse(f"{len(numbers)} numbers are no changes of a KV cache")
    position, is_new, count = numbers[:3]
    stored, removed = numbers[3 : 3 + count], numbers[3 + count :]
    return BlockChanges(position, bool(is_new), stored, removed)


def encode_admission(request: EngineRequest) -> service_pb2.ModelInferRequest:
    """A request to the tokenizer model alone."""
    model = request.model
    message = service_pb2.ModelInferRequest(model_name=model.facts.tokenizer_model, id=request.id)
    has_salt = tensors.TOKENIZER_SALT.capability in model.capabilities
    inputs = [
        row for row in tensors.TOKENIZER_INPUTS if has_salt or row is not tensors.TOKENIZER_SALT
    ]
    _add_inputs(message, inputs, tensors.input_values(request))
    if request.constraint is not None:  # see client.GuideRetries
        message.parameters["guide_may_be_pending"].bool_param = True
    for output in tensors.TOKENIZER_OUTPUTS:
        if output.capability is None or output.capability in model.capabilities:
            message.outputs.add(name=output.name)
    return message


def encode_detokenization(
    model: ModelCard, request_id: str, ids: Sequence[int]
) -> service_pb2.ModelInferRequest:
    """A request to the detokenizer model alone."""
    message = service_pb2.ModelInferRequest(model_name=model.facts.detokenizer_model, id=request_id)
    raw, elements = raw_elements("INT32", ids)
    message.inputs.add(name="output_ids", datatype="INT32", shape=(1, 1, elements))
    message.raw_input_contents.append(raw)
    message.outputs.add(name=tensors.TEXT_OUTPUT)
    if tensors.has_receipts(model):
        message.outputs.add(name=tensors.RECEIPT)
    return message


def encode_end_of_detokenizer(model: ModelCard) -> service_pb2.ModelInferRequest:
    """The message that ends the process of the detokenizer, or of an embedding model, so that its
    supervisor restarts Triton.
    """
    if model.facts.pooling is None:
        message = encode_detokenization(model, "", (0,))
    else:
        message = service_pb2.ModelInferRequest(model_name=model.triton_model)
    message.inputs.add(name="end_process", datatype="BOOL", shape=(1, 1))
    message.raw_input_contents.append(b"\x01")
    return streamed(message)


def receipt_mark(request_id: str) -> bytes:
    """How each receipt for this request ends: with the CRC-32 of its id."""
    return struct.pack("<I", zlib.crc32(request_id.encode()))


def streamed(message: service_pb2.ModelInferRequest) -> service_pb2.ModelInferRequest:
    """Makes Triton mark the end of the stream."""
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    return message


def _add_inputs(
    message: service_pb2.ModelInferRequest,
    rows: Sequence[Tensor],
    values: Mapping[str, Value | None],
) -> None:
    inputs, contents = [], []
    for row in rows:
        value = values[row.name]
        if value is None or value == ():
            continue
        raw, elements = raw_elements(row.datatype, value)
        inputs.append(_input(row.name, row.datatype, elements))
        contents.append(raw)
    message.MergeFromString(b"".join(inputs))
    message.raw_input_contents.extend(contents)


@lru_cache(maxsize=256)
def _input(name: str, datatype: str, elements: int) -> bytes:
    """The description of an input, in the wire format of a request that has no more than it."""
    message = service_pb2.ModelInferRequest()
    message.inputs.add(name=name, datatype=datatype, shape=(1, elements))
    return bytes(message.SerializeToString())


def raw_elements(datatype: str, value: Value) -> tuple[bytes, int]:
    """The elements in little-endian order, and their number."""
    if isinstance(value, bytes):
        return value, len(value) // plain_spans.SIZE
    if isinstance(value, str):
        encoded = value.encode()
        return struct.pack("<I", len(encoded)) + encoded, 1
    elements = (value,) if isinstance(value, (int, float)) else value
    if datatype == "BYTES":
        return b"".join(raw_elements(datatype, str(one))[0] for one in elements), len(elements)
    if datatype == "UINT64":  # OpenAI's seed is signed
        elements = tuple(int(element) & UINT64_MASK for element in elements)
    return struct.pack(_FORMATS[datatype] % len(elements), *elements), len(elements)


def decode(response: service_pb2.ModelInferResponse, mark: bytes | None = None) -> StreamMessage:
    """The message in an engine's response.

    Args:
        mark: see `receipt_mark`.

    Raises:
        MalformedResponse: it violates the tensor contract.
        ForeignReceipt: its texts belong to another response.
    """
    is_final = response.parameters[_FINAL].bool_param
    outputs, contents = response.outputs, response.raw_output_contents
    count = len(outputs)
    if len(contents) != count:
        raise MalformedResponse(f"{count} outputs with {len(contents)} contents")
    if not count:
        return StreamMessage(None, is_final)
    raw: dict[str, bytes] = {}
    for at in range(count):  # iterating over protobuf's containers costs twice as much
        raw[outputs[at].name] = contents[at]
    if mark is not None:
        check_receipt(raw, mark)
    text = raw.pop(tensors.TEXT_OUTPUT, b"")
    if len(text) >= 4 and int.from_bytes(text[:4], "little") == len(text) - 4:
        texts: tuple[bytes, ...] = (text[4:],)
    else:
        texts = bytes_elements(text)
    ids = raw.get(tensors.OUTPUT_IDS)
    if ids is not None and len(raw) == 1 and len(ids) == 4 * len(texts):
        # text and ids alone, as in nearly all responses
        numbers = struct.unpack(f"<{len(texts)}i", ids)
        return StreamMessage(TokenDelta(texts, token_ids=numbers), is_final)
    return StreamMessage(_delta(texts, raw) if raw else TokenDelta(texts), is_final)


def check_receipt(raw: dict[str, bytes], mark: bytes) -> None:
    """Takes the receipt out of a response's outputs. Raises ForeignReceipt."""
    ids = raw.get(tensors.OUTPUT_IDS, b"") + raw.get(tensors.TOP_IDS, b"")
    if raw.pop(tensors.RECEIPT, None) != ids + mark:
        raise ForeignReceipt("the detokenizer answered for other token ids, or another request")


def _delta(texts: tuple[bytes, ...], raw: Mapping[str, bytes]) -> TokenDelta:
    """A delta with more than text: what the request asked for, or the engine sends at times."""
    ids = raw.get(tensors.OUTPUT_IDS)
    finish = raw.get(tensors.FINISH_REASON)
    token_ids = () if ids is None else _numbers("i", ids)
    queue_us = first_int(raw.get(tensors.QUEUE_TIME))
    delta = TokenDelta(
        texts,
        prompt_tokens=first_int(raw.get(tensors.NUM_INPUT_TOKENS)),
        cached_tokens=first_int(raw.get(tensors.NUM_CACHED_TOKENS)),
        finish=None if finish is None else _finish_reason(bytes_elements(finish)),
        token_ids=token_ids,
        log_probs=_log_probs(raw, token_ids) if tensors.LOG_PROBS in raw else (),
        prompt_blocks=raw.get(tensors.PROMPT_BLOCKS, b""),
        queue_s=None if queue_us is None else queue_us / 1_000_000,
        times=None if finish is None else _times(raw),
    )
    _check_lengths(delta)
    return delta


def _times(raw: Mapping[str, bytes]) -> EngineTimes | None:
    """Of a stream's last delta; None if the engine does not report them."""
    prefill_us = first_int(raw.get(tensors.PREFILL_TIME))
    decode_us = first_int(raw.get(tensors.DECODE_TIME))
    if prefill_us is None or decode_us is None:
        return None
    return EngineTimes(prefill_s=prefill_us / 1_000_000, decode_s=decode_us / 1_000_000)


def _log_probs(raw: Mapping[str, bytes], ids: tuple[int, ...]) -> tuple[TokenLogProb, ...]:
    """Each token's log-probability and its alternatives; every token has equally many of these."""
    own = _numbers("f", raw[tensors.LOG_PROBS])
    values = _numbers("f", raw.get(tensors.TOP_LOG_PROBS, b""))
    texts = bytes_elements(raw.get(tensors.TOP_TEXT, b""))
    if len(values) != len(texts) or (values and (not own or len(values) % len(own))):
        raise MalformedResponse(
            f"{len(values)} values and {len(texts)} texts of alternatives to {len(own)} tokens"
        )
    top_ids = _ids(raw.get(tensors.TOP_IDS), len(values))
    top = tuple(map(Alternative, texts, values, top_ids))
    each = len(top) // len(own) if own else 0
    own_ids = ids if len(ids) == len(own) else [None] * len(own)
    return tuple(
        TokenLogProb(None, (), token_id)
        if math.isnan(value)
        else TokenLogProb(value, top[at * each : (at + 1) * each], token_id)
        for at, (value, token_id) in enumerate(zip(own, own_ids, strict=True))
    )


def _ids(raw: bytes | None, count: int) -> Sequence[int | None]:
    ids = [None] * count if raw is None else _numbers("i", raw)
    if len(ids) != count:
        raise MalformedResponse(f"{len(ids)} ids to {count} alternatives")
    return ids


def _check_lengths(delta: TokenDelta) -> None:
    tokens = len(delta.token_bytes)
    for found in (delta.token_ids, delta.log_probs):
        if found and len(found) != tokens:
            raise MalformedResponse(f"{len(found)} values to {tokens} tokens")


def first_int(raw: bytes | None) -> int | None:
    return None if raw is None else int.from_bytes(raw[:4], "little")


def _numbers(kind: str, raw: bytes) -> tuple[Any, ...]:
    """Little-endian elements; `kind` is a format character of `struct`."""
    try:
        return struct.unpack(f"<{len(raw) // struct.calcsize(kind)}{kind}", raw)
    except struct.error as error:
        raise MalformedResponse(f"a tensor of {len(raw)} bytes ends inside an element") from error


def bytes_elements(raw: bytes) -> tuple[bytes, ...]:
    """Triton's BYTES: before each element its length, in four little-endian bytes."""
    elements, at, end = [], 0, len(raw)
    try:
        while at < end:
            (length,) = _LENGTH.unpack_from(raw, at)
            start = at + 4
            at = start + length
            elements.append(raw[start:at])
    except struct.error:  # fewer than four bytes are left
        at = -1
    if at != end:
        raise MalformedResponse(f"a BYTES tensor of {end} bytes ends inside an element")
    return tuple(elements)


def _finish_reason(elements: tuple[bytes, ...]) -> FinishReason:
    try:
        return FinishReason(b"".join(elements).decode())
    except ValueError as error:
        raise MalformedResponse(f"unknown finish reason {elements!r}") from error
