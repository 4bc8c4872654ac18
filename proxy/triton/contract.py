"""The comparison of tensors.py with what a Triton model really declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tritonclient.grpc import service_pb2

from proxy.triton.tensors import CONTRACT_VERSION, InputTensor, OutputTensor


def version_differences(parameters: Mapping[str, str]) -> list[str]:
    """Empty when the model was built for the contract that this proxy speaks."""
    found = parameters["contract_version"]
    if found == CONTRACT_VERSION:
        return []
    return [
        f"it was built for tensor contract {found}, this proxy speaks {CONTRACT_VERSION}: "
        "build it again with the proxy's version"
    ]


def tensor_differences(
    metadata: service_pb2.ModelMetadataResponse,
    inputs: Sequence[InputTensor],
    outputs: Sequence[OutputTensor],
) -> list[str]:
    """Every tensor that we send or read must be declared, with its datatype."""
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
    ]
