"""Which dialect a Triton model speaks, by what it declares."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tritonclient.grpc import model_config_pb2

from proxy.domain.constraint import GuideKind
from proxy.domain.model import (
    ASSUMED_CONTEXT,
    Adopted,
    Kind,
    LoadedModel,
    ModelFacts,
)
from proxy.triton.dialects.cpp import CppBackend
from proxy.triton.dialects.dialect import Declared, Dialect
from proxy.triton.dialects.embedding import Embedding, facts_of
from proxy.triton.dialects.llmapi import Llmapi
from proxy.triton.dialects.own import Own
from proxy.triton.dialects.text import TextModel
from proxy.triton.dialects.vllm import Vllm

OWN: Dialect = Own()
# In the order in which a model of others is compared with them.
DIALECTS: Mapping[Kind, Dialect] = {
    Kind.OWN: OWN,
    Kind.EMBEDDING: Embedding(),
    Kind.VLLM: Vllm(),
    Kind.LLMAPI: Llmapi(),
    Kind.CPP: CppBackend(),
    Kind.TEXT: TextModel(),
}
NO_TAGS = tuple(kind for kind in GuideKind if kind is not GuideKind.STRUCTURAL_TAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """notes: what it cannot do as it is set up, and what would change that."""

    model: LoadedModel
    notes: tuple[str, ...]


def recognized(
    config: model_config_pb2.ModelConfig, all_configs: Mapping[str, model_config_pb2.ModelConfig]
) -> Found | None:
    """A model of others that the proxy can serve; None: it is not for text.

    all_configs: of that Triton, by name: an ensemble's steps are among them.
    """
    declared = Declared.of(config, all_configs)
    for kind, dialect in DIALECTS.items():
        if (capabilities := dialect.capabilities(declared)) is not None:
            model = _loaded(declared, kind, capabilities)
            return Found(model=model, notes=tuple(dialect.notes(declared)))
    return None


def _loaded(declared: Declared, kind: Kind, capabilities: Collection[str]) -> LoadedModel:
    adopted = Adopted(
        kind=kind,
        inputs=declared.inputs,
        outputs=declared.outputs,
        has_batches=declared.has_batches,
        is_decoupled=declared.is_decoupled,
        is_cumulative=declared.is_cumulative,
        stopped_by=declared.stopped_by,
    )
    name = declared.name
    facts = ModelFacts(
        context_length=ASSUMED_CONTEXT,
        says_context=False,
        chat_template=None,
        bos_token="",
        eos_token="",
        strips_leading_space=False,
        created=0,
        vocab_size=2**31 - 1,
        engine_model=declared.stopped_by or name,
        tokenizer_model=name,
        detokenizer_model=name,
        runtime=declared.backend,
        guide_kinds=NO_TAGS if kind is Kind.CPP else tuple(GuideKind),
        adopted=adopted,
    )
    if kind is Kind.EMBEDDING:
        facts = facts_of(declared, facts)
    return LoadedModel(name=name, facts=facts, capabilities=frozenset(capabilities))
