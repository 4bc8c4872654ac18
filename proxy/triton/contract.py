"""Compares `tensors` with what a Triton model declares. Called by `catalog`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tritonclient.grpc import service_pb2

from proxy.triton.tensors import (
    LEASE_INPUTS,
    SUPPORTED_VERSIONS,
    InputTensor,
    OutputTensor,
)


def version_differences(parameters: Mapping[str, str]) -> list[str]:
    """Empty if the model was built for a version of the contract that this proxy supports."""
    found = parameters["contract_version"]
    if found in SUPPORTED_VERSIONS:
        return []
    return [
        f"it was built for tensor contract {found}, this proxy supports "
        f"{' and '.join(SUPPORTED_VERSIONS)}: build it again with the proxy's version"
    ]


def tensor_differences(
    metadata: service_pb2.ModelMetadataResponse,
    inputs: Sequence[InputTensor],
    outputs: Sequence[OutputTensor],
) -> list[str]:
    """Empty if all required tensors are declared, and all optional ones have our datatype."""
    return [
        *_differences(f"{metadata.name}: input", inputs, metadata.inputs),
        *_differences(f"{metadata.name}: output", outputs, metadata.outputs),
    ]


def _differences(
    kind: str,
    ours: Sequence[InputTensor | OutputTensor],
    theirs: Sequence[service_pb2.ModelMetadataResponse.TensorMetadata],
) -> list[str]:
    declared = {tensor.name: tensor.datatype for tensor in theirs}
    return [
        f"{kind} {tensor.name} is {declared.get(tensor.name, 'not declared')}, "
        f"must be {tensor.datatype}"
        for tensor in ours
        if declared.get(tensor.name) != tensor.datatype
        and (tensor.capability is None or tensor.name in declared)
    ]


def has_leases(engine: service_pb2.ModelMetadataResponse) -> bool:
    """Whether the engine model declares all inputs of a lease."""
    return not tensor_differences(engine, LEASE_INPUTS, ())


def capabilities(
    metadata: service_pb2.ModelMetadataResponse,
    inputs: Sequence[InputTensor],
    outputs: Sequence[OutputTensor],
) -> frozenset[str]:
    """The capabilities for which the model declares every tensor."""
    declared = {row.name for row in (*metadata.inputs, *metadata.outputs)}
    rows: list[InputTensor | OutputTensor] = [*inputs, *outputs]
    missing = {row.capability for row in rows if row.name not in declared}
    return frozenset(
        row.capability
        for row in rows
        if row.capability is not None and row.capability not in missing
    )
