"""What models.yaml adds to a model that others built. Called by `public_models` and `policy`."""

from __future__ import annotations

from dataclasses import replace

from build_engines.errors import BuildError
from build_engines.models_file import RemoteEntry
from proxy.domain.model import Adopted, Kind, LoadedModel, TextTensors
from proxy.triton.dialects.dialect import fitting
from proxy.triton.local_tokenizer import local_tokenizer

WITH_TOKENIZER = frozenset({"limits", "prompt_token_ids"})


def adopted(model: LoadedModel, given: Adopted, entry: RemoteEntry) -> LoadedModel | None:
    """The model with what its entry says; None: the entry does not say which tensors it has.

    given: what Triton says of the model.
    """
    tensors = None if entry.tensors is None else _tensors(entry)
    if given.kind is Kind.TEXT and (tensors is None or not _fit(tensors, given)):
        return None
    found, facts = set(model.capabilities), model.facts
    if given.kind is Kind.TEXT and tensors is not None:
        found.update(tensors.inputs)
    length = entry.context_length
    folder = None if entry.tokenizer is None else str(entry.tokenizer)
    if folder is not None:
        tokenizer = local_tokenizer(folder)
        facts = tokenizer.facts(facts)
        length = length or tokenizer.context_length
        found |= WITH_TOKENIZER if "max_tokens" in found else WITH_TOKENIZER - {"limits"}
    facts = replace(
        facts,
        adopted=replace(
            given,
            tokenizer=folder,
            tensors=tensors,
            continues=entry.continues,
            shares_prefixes=entry.prefix_cache == "shared",
        ),
        adapters=entry.adapters,
        default_max_tokens=entry.sampling.max_tokens,
        context_length=length or facts.context_length,
        says_context=length is not None,
        rows=entry.rows or facts.rows,
        says_rows=entry.rows is not None,
    )
    return replace(model, facts=facts, capabilities=frozenset(found))


def wrong_tokenizer(entry: RemoteEntry) -> str | None:
    """Why the entry's tokenizer cannot be used; None if it can. Reads it, which takes a while."""
    if entry.tokenizer is None:
        return None
    try:
        local_tokenizer(str(entry.tokenizer))
    except BuildError as error:
        return str(error)
    return None


def _tensors(entry: RemoteEntry) -> TextTensors:
    assert entry.tensors is not None
    given = entry.tensors
    return TextTensors(
        prompt=given.prompt,
        text=given.text,
        inputs={str(name): tensor for name, tensor in given.inputs.items()},
        is_cumulative=given.cumulative,
        repeats_prompt=given.repeats_prompt,
    )


def _fit(tensors: TextTensors, given: Adopted) -> bool:
    """Whether the model has them, with datatypes that can take the fields."""
    inputs, outputs = given.inputs, given.outputs
    is_text = inputs.get(tensors.prompt) == outputs.get(tensors.text) == "BYTES"
    return is_text and fitting(tensors.inputs, inputs) == tensors.inputs.keys()
