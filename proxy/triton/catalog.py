"""The models that Triton has loaded: reads their facts from their configs, checks the contract."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc
from tritonclient.grpc import model_config_pb2, service_pb2

from proxy.domain.constraint import GuideKind
from proxy.domain.engine import NotReady
from proxy.domain.model import USUAL_ROWS, LoadedModel, ModelFacts
from proxy.triton import drain_mark, tensors
from proxy.triton.client import TritonClient
from proxy.triton.dialects.recognition import Found, recognized
from proxy.triton.target import RESTRICTED_HEADER
from proxy.triton.tensors import (
    LEASE_INPUTS,
    SUPPORTED_VERSIONS,
    Tensor,
)

CALL_TIMEOUT_S = 5.0
ALWAYS = frozenset({"max_tokens", "prompt_token_ids", "special_text"})  # of every ensemble of ours
# categories of NotReady
UNREACHABLE = "Triton cannot be reached"
FAILS = "Triton responds with an error"
NOTHING_SERVED = "Triton serves no model of this project"
STOPPING = "Triton is stopping"
MISFIT = "a model does not fit this version of the proxy"


class TritonCatalog:
    """What one server has. Our models have the config parameter `contract_version`.

    others: the models that others built, as the last load found them.
    """

    def __init__(self, client: TritonClient) -> None:
        self._client = client
        self.others: tuple[Found, ...] = ()

    async def check_ready(self, models: Collection[str]) -> None:
        answer = await self._call(self._client.stub.ServerReady, service_pb2.ServerReadyRequest())
        if not answer.ready:
            raise NotReady("Triton is starting, or has a model that failed to load")
        if await drain_mark.is_set(self._client.stub, self._client.restricted_metadata):
            raise NotReady(f"Triton at {self._client.target} is draining", STOPPING)
        for name in models:
            request = service_pb2.ModelReadyRequest(name=name)
            if not (await self._call(self._client.stub.ModelReady, request)).ready:
                raise NotReady(f"Triton's model {name!r} is not ready")

    async def ready_models(self) -> frozenset[str]:
        """Name and version of all that is ready, of other projects, too. Cheap. Raises NotReady."""
        await self.check_ready(())
        return frozenset(f"{one.name}:{one.version}" for one in (await self._index()).models)

    async def load(self) -> tuple[LoadedModel, ...]:
        await self.check_ready(())
        versions: dict[str, set[int]] = {}
        for model in (await self._index()).models:
            versions.setdefault(model.name, set()).add(int(model.version or 1))
        configs = {name: await self._config(name) for name in versions}
        ours = [one for one in configs.values() if "contract_version" in one.parameters]
        own = [await self._loaded(config) for config in ours]
        taken = {name for one in own for name in one.triton_models}
        found = [recognized(one, configs) for name, one in configs.items() if name not in taken]
        known = [one for one in found if one is not None]
        self.others = tuple(one for one in known if one.model.facts.pooling is None)
        others = [one.model for one in known]
        if not (own or others):
            raise NotReady(
                f"Triton at {self._client.target} serves no language model that is known here",
                NOTHING_SERVED,
            )
        models = [replace(one, versions=frozenset(versions[one.name])) for one in (*own, *others)]
        _check_names(models)
        return tuple(models)

    async def _index(self) -> Any:
        """The only call to a protocol that the launcher restricts."""
        request = service_pb2.RepositoryIndexRequest(ready=True)
        metadata = self._client.restricted_metadata
        return await self._call(self._client.stub.RepositoryIndex, request, metadata=metadata)

    async def _config(self, name: str) -> model_config_pb2.ModelConfig:
        request = service_pb2.ModelConfigRequest(name=name)
        return (await self._call(self._client.stub.ModelConfig, request)).config

    async def _loaded(self, config: model_config_pb2.ModelConfig) -> LoadedModel:
        parameters = _parameters(config)
        if differences := version_differences(parameters):
            raise _misfit(config, differences)
        facts = _facts(config.name, parameters)
        tokenizer = _parameters(await self._config(facts.tokenizer_model))
        engine = await self._metadata(facts.engine_model)
        if differences := await self._tensor_differences(facts, config):
            raise _misfit(config, differences)
        ensemble = await self._metadata(config.name)
        of_tokenizer = await self._metadata(facts.tokenizer_model)
        return LoadedModel(
            name=config.name,
            facts=replace(facts, **_admission(tokenizer), has_leases=has_leases(engine)),
            capabilities=capabilities(ensemble, tensors.INPUTS, tensors.OUTPUTS)
            | capabilities(of_tokenizer, (tensors.TOKENIZER_SALT,), ())
            | ALWAYS,
        )

    async def _tensor_differences(
        self, facts: ModelFacts, config: model_config_pb2.ModelConfig
    ) -> list[str]:
        found = []
        for name, inputs, outputs in (
            (config.name, tensors.INPUTS, tensors.outputs_of(facts)),
            (facts.engine_model, tensors.stop_inputs_of(facts), ()),
            (facts.tokenizer_model, tensors.TOKENIZER_INPUTS, tensors.TOKENIZER_OUTPUTS),
        ):
            found += tensor_differences(await self._metadata(name), inputs, outputs)
        return found

    async def _metadata(self, name: str) -> service_pb2.ModelMetadataResponse:
        request = service_pb2.ModelMetadataRequest(name=name)
        metadata: service_pb2.ModelMetadataResponse = await self._call(
            self._client.stub.ModelMetadata, request
        )
        return metadata

    async def _call(self, method: Any, request: Any, **options: Any) -> Any:
        try:
            return await method(request, timeout=CALL_TIMEOUT_S, **options)
        except grpc.aio.AioRpcError as error:
            is_unreachable = error.code() == grpc.StatusCode.UNAVAILABLE
            category = UNREACHABLE if is_unreachable else FAILS
            raise NotReady(
                f"Triton at {self._client.target}: {_description(error)}", category
            ) from error


def _check_names(models: Collection[LoadedModel]) -> None:
    """Adapters are models to callers, so names must be unique across both."""
    owners: dict[str, str] = {}
    for model in models:
        for name in (model.name, *model.facts.adapters):
            if name in owners:
                raise NotReady(
                    f"{name!r} is a model or an adapter of {owners[name]!r} and of {model.name!r}: "
                    "rename one of them and build again",
                    MISFIT,
                )
            owners[name] = model.name


def _description(error: grpc.aio.AioRpcError) -> str:
    if RESTRICTED_HEADER in (error.details() or ""):
        return (
            "refuses to list its models: set TRITON_SECRET to the value that this Triton was "
            "started with"
        )
    if error.code() == grpc.StatusCode.UNAVAILABLE:
        return "cannot be reached"
    return f"{error.code().name}: {error.details()}"


def _parameters(config: model_config_pb2.ModelConfig) -> dict[str, str]:
    return {key: value.string_value for key, value in config.parameters.items()}


def _misfit(config: model_config_pb2.ModelConfig, differences: Collection[str]) -> NotReady:
    return NotReady(f"model {config.name!r} does not fit: {'; '.join(differences)}", MISFIT)


def _admission(tokenizer: Mapping[str, str]) -> dict[str, Any]:
    """The tokenizer's default for max_tokens, and the kinds of guides that it accepts.

    A tokenizer that does not list the kinds accepts all of them.
    """
    kinds = tokenizer.get("guide_kinds")
    accepted = [kind.value for kind in GuideKind] if kinds is None else kinds.split(",")
    return {
        "default_max_tokens": int(tokenizer.get("default_max_tokens", 0)) or None,
        "guide_kinds": tuple(kind for kind in GuideKind if kind.value in accepted),
    }


def _infilling(parameters: Mapping[str, str]) -> tuple[str, str, str] | None:
    if "fim_prefix" not in parameters:
        return None
    return parameters["fim_prefix"], parameters["fim_suffix"], parameters["fim_middle"]


def _facts(model: str, parameters: Mapping[str, str]) -> ModelFacts:
    try:
        return ModelFacts(
            context_length=int(parameters["context_length"]),
            chat_template=parameters.get("chat_template"),
            tool_template=parameters.get("tool_template"),
            response_template=parameters.get("response_template"),
            bos_token=parameters["bos_token"],
            eos_token=parameters["eos_token"],
            strips_leading_space=parameters["strips_leading_space"] == "1",
            created=int(parameters["created"]),
            vocab_size=int(parameters["vocab_size"]),
            engine_model=parameters["engine_model"],
            tokenizer_model=parameters["tokenizer_model"],
            detokenizer_model=parameters["detokenizer_model"],
            end_ids=tuple(int(i) for i in parameters["end_ids"].split(",") if i),
            runtime=parameters["runtime"],
            infilling=_infilling(parameters),
            special_tokens={
                int(token): str(text).encode()
                for token, text in json.loads(parameters["special_tokens"]).items()
            },
            adapters=tuple(json.loads(parameters.get("lora_adapters", "[]"))),
            rows=int(parameters.get("rows", USUAL_ROWS)),
            says_rows="rows" in parameters,
            added_marks=tuple(json.loads(parameters.get("added_marks", "[]"))),
        )
    except (KeyError, ValueError) as error:
        raise NotReady(
            f"model {model!r} has wrong or missing config parameters: {error}", MISFIT
        ) from error


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
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> list[str]:
    """Empty if all required tensors are declared, and all optional ones have our datatype."""
    return [
        *_differences(f"{metadata.name}: input", inputs, metadata.inputs),
        *_differences(f"{metadata.name}: output", outputs, metadata.outputs),
    ]


def _differences(
    kind: str,
    ours: Sequence[Tensor],
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
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> frozenset[str]:
    """The capabilities for which the model declares every tensor."""
    declared = {row.name for row in (*metadata.inputs, *metadata.outputs)}
    rows = (*inputs, *outputs)
    missing = {row.capability for row in rows if row.name not in declared}
    return frozenset(
        row.capability
        for row in rows
        if row.capability is not None and row.capability not in missing
    )
