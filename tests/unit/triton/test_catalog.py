"""TritonCatalog: what a model declares is what it can do; only what it must have keeps it out."""

from __future__ import annotations

import asyncio

import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from build_engines.facts import INFILLING_PARAMETERS
from proxy.domain.engine import NotReady
from proxy.domain.model import CAPABILITIES
from proxy.triton import catalog, tensors
from proxy.triton.catalog import TritonCatalog

PARAMETERS = {
    "contract_version": tensors.CONTRACT_VERSION,
    "engine_model": "demo_engine",
    "tokenizer_model": "demo_tokenizer",
    "detokenizer_model": "demo_detokenizer",
    "vocab_size": "64",
    "context_length": "64",
    "bos_token": "",
    "eos_token": "",
    "strips_leading_space": "0",
    "created": "1",
    "runtime": "onnx",
    "end_ids": "2,3",
    "special_tokens": '{"7": "<end>"}',
}
DECLARED = {
    "demo": (tensors.INPUTS, tensors.OUTPUTS),
    "demo_engine": (tensors.STOP_INPUTS, ()),
    "demo_tokenizer": (tensors.TOKENIZER_INPUTS, tensors.TOKENIZER_OUTPUTS),
}


class Server:
    """A client whose server has one model, `demo`, that declares all tensors but some."""

    target = "here"
    restricted_metadata = (("its", "secret"),)

    def __init__(self, *, without: set[str] = frozenset(), **tokenizer: str) -> None:
        self.stub = self
        self._without = without
        self._tokenizer = tokenizer

    async def ServerReady(self, request, timeout):
        return service_pb2.ServerReadyResponse(ready=True)

    async def SystemSharedMemoryStatus(self, request, timeout, metadata):
        assert metadata == self.restricted_metadata
        return service_pb2.SystemSharedMemoryStatusResponse()

    async def RepositoryIndex(self, request, timeout, metadata):
        assert metadata == self.restricted_metadata
        index = service_pb2.RepositoryIndexResponse()
        index.models.add(name="demo")
        index.models.add(name="demo_engine")
        return index

    async def ModelConfig(self, request, timeout):
        config = model_config_pb2.ModelConfig(name=request.name)
        given = {"demo": PARAMETERS, "demo_tokenizer": self._tokenizer}.get(request.name, {})
        for key, value in given.items():
            config.parameters[key].string_value = value
        return service_pb2.ModelConfigResponse(config=config)

    async def ModelMetadata(self, request, timeout):
        metadata = service_pb2.ModelMetadataResponse(name=request.name)
        inputs, outputs = DECLARED[request.name]
        without = self._without if request.name == "demo" else ()
        for rows, declared in ((inputs, metadata.inputs), (outputs, metadata.outputs)):
            for row in rows:
                if row.name not in without:
                    declared.add(name=row.name, datatype=row.datatype)
        return metadata


def capabilities(*without: str) -> frozenset[str]:
    (model,) = asyncio.run(TritonCatalog(Server(without=set(without))).load())
    return model.capabilities


@pytest.mark.parametrize("has_leases", [True, False])
def test_an_engine_knows_leases_where_it_declares_their_tensors(monkeypatch, has_leases):
    inputs = (*tensors.STOP_INPUTS, *(tensors.LEASE_INPUTS[-1:] if has_leases else ()))
    monkeypatch.setitem(DECLARED, "demo_engine", (inputs, ()))
    (model,) = asyncio.run(TritonCatalog(Server()).load())
    assert model.facts.has_leases is has_leases


def test_a_model_without_some_tensors_is_served_without_those_capabilities():
    missing = capabilities("min_p", "guided_decoding_guide", "output_ids")
    ours = CAPABILITIES - {"embeddings", "scores"}
    assert capabilities() == ours
    assert missing == ours - {"min_p", "constraint", "token_ids"}
    assert capabilities("resume_from") == ours - {"resume"}  # as contract 2 has it


def test_missing_and_wrong_tensors_are_all_named():
    declared = service_pb2.ModelMetadataResponse(name="demo")
    for row in tensors.INPUTS:
        kind = "FP64" if row.name == "top_p" else row.datatype
        if row.name not in ("seed", "text_input"):  # without the first it lacks a capability
            declared.inputs.add(name=row.name, datatype=kind)
    assert catalog.tensor_differences(declared, tensors.INPUTS, ()) == [
        "demo: input text_input is not declared, must be BYTES",
        "demo: input top_p is FP64, must be FP32",
    ]


def test_another_contract_version_is_named():
    for supported in ("2", "3"):
        assert catalog.version_differences({"contract_version": supported}) == []
    for other in ("1", "4"):
        (told,) = catalog.version_differences({"contract_version": other})
        assert f"contract {other}, this proxy supports 2 and 3" in told


@pytest.mark.parametrize("name", ["text_input", "max_tokens", "text_output", "finish_reason"])
def test_a_model_without_what_it_must_have_is_not_served(name):
    with pytest.raises(NotReady, match=f"{name} is not declared"):
        capabilities(name)


@pytest.mark.parametrize(
    ("written", "fact", "value", "otherwise"),
    [
        ({"lora_adapters": '["sql", "poet"]'}, "adapters", ("sql", "poet"), ()),
        ({"chat_template": "a"}, "chat_template", "a", None),
        ({"tool_template": "b"}, "tool_template", "b", None),
        ({"response_template": "{}"}, "response_template", "{}", None),
        (
            dict(zip(INFILLING_PARAMETERS, ("<p>", "<s>", "<m>"), strict=True)),
            "infilling",
            ("<p>", "<s>", "<m>"),
            None,
        ),
    ],
)
def test_what_not_every_model_has_comes_as_build_wrote_it(
    monkeypatch, written, fact, value, otherwise
):
    for expected in (otherwise, value):
        (model,) = asyncio.run(TritonCatalog(Server()).load())
        assert getattr(model.facts, fact) == expected
        for name, text in written.items():
            monkeypatch.setitem(PARAMETERS, name, text)


def test_an_adapter_that_has_a_models_name_is_told_and_not_served(monkeypatch):
    monkeypatch.setitem(PARAMETERS, "lora_adapters", '["demo"]')
    with pytest.raises(NotReady, match="'demo' is a model or an adapter of 'demo' and of 'demo'"):
        asyncio.run(TritonCatalog(Server()).load())
