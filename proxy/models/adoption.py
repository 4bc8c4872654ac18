"""What models.yaml adds to a model that others built. Called by `public_models` and `policy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from build_engines.errors import BuildError
from build_engines.models_file import OF_ANSWERS, RemoteEntry
from proxy.domain.engine import NotReady
from proxy.domain.model import Adopted, Kind, LoadedModel, TextTensors
from proxy.triton.dialects.dialect import fitting
from proxy.triton.local_tokenizer import local_tokenizer

WITH_TOKENIZER = frozenset({"limits", "prompt_token_ids"})
GENERATING = (Kind.VLLM, Kind.LLMAPI, Kind.CPP, Kind.TEXT)
# Field of an entry -> the kinds on which it has an effect. `sampling` may come from the settings.
EFFECTIVE: dict[str, tuple[Kind, ...]] = {
    **dict.fromkeys(OF_ANSWERS - {"sampling"}, (Kind.OWN, *GENERATING)),
    **dict.fromkeys(("tokenizer", "context_length", "rows", "continues"), GENERATING),
    **dict.fromkeys(("adapters", "prefix_cache"), (Kind.VLLM,)),
    "tensors": (Kind.TEXT,),
}


def check_effects(name: str, entry: RemoteEntry, models: Sequence[LoadedModel]) -> None:
    """models: of all deployments of the entry, which may be of several kinds.

    Raises:
        NotReady: the entry sets what has no effect on any of them.
    """
    kinds = dict.fromkeys(one.facts.kind for one in models)
    has_ids = entry.tokenizer is not None and any("token_ids" in one.capabilities for one in models)
    for field in sorted(entry.model_fields_set & EFFECTIVE.keys()):
        given, takers = getattr(entry, field), EFFECTIVE[field]
        if kinds.keys().isdisjoint(takers):
            advice = f"remove it; it is for {', '.join(one.value for one in takers)}"
        elif given == "ids" and not has_ids:
            advice = "it needs a `tokenizer`, and token ids, which vllm reports: use text or none"
        else:
            continue
        said = RemoteEntry.model_fields[field].alias or field
        said += f": {given}" if isinstance(given, str) else ""
        raise NotReady(
            f"`{said}` of the model {name!r} in models.yaml has no effect on a Triton model of the "
            f"kind {' or '.join(one.value for one in kinds)}: {advice}",
            "an entry of models.yaml does not fit its model",
        )


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
