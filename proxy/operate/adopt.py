"""Shows which language models a Triton has, and writes entries of models.yaml for those of others.

Behind `triton-openai adopt` and `doctor --triton`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import yaml

from build_engines import models_file
from build_engines.errors import BuildError
from build_engines.models_file import ModelsFileError
from proxy.domain.engine import NotReady
from proxy.domain.errors import LaunchError
from proxy.domain.model import CAPABILITIES, Adopted, Kind, LoadedModel
from proxy.language.syntax.parsers import of_checkpoint
from proxy.operate.doctor.checks import Check
from proxy.pools.discovery import source_url
from proxy.pools.discovery.source import InvalidSource, StaticList
from proxy.settings import Settings
from proxy.triton.connection import TritonConnection
from proxy.triton.dialects.recognition import Found
from proxy.triton.local_tokenizer import local_tokenizer
from proxy.triton.target import Target

KINDS = {
    Kind.OWN: "built by this project",
    Kind.VLLM: "NVIDIA's vLLM backend",
    Kind.LLMAPI: "TensorRT-LLM's llmapi model",
    Kind.CPP: "TensorRT-LLM's C++ backend",
    Kind.TEXT: "a text model",
    Kind.EMBEDDING: "an embedding model or a cross-encoder, built by this project",
}
# What callers do not ask for: see domain.model.CAPABILITIES.
OURS = frozenset({"limits", "deadline", "receipt", "resume", "queue_time", "engine_times"}) | {
    "prompt_blocks",
    "plain_spans",
}
SEES = "if the model reads them and its chat template has a place for them"
SEES_NOT = {
    Kind.OWN: "its engine reads none",
    Kind.VLLM: "this version of the backend has no input `image`",
    Kind.CPP: "the ensemble takes a text",
    Kind.TEXT: "a mapping names one text",
    Kind.EMBEDDING: "it embeds texts",
}
# TensorRT-LLM pull request 18381
OWN_TEMPLATE = (
    "with its `image_url` the model applies a chat template itself to one question, which a chat "
    "that is rendered here is not, and ignores images without `multimodal` in its model.yaml, "
    "which Triton does not report: serve it with vLLM to have both"
)
PROMPTS = ("prompt", "text_input", "PROMPT", "INPUT0", "input")


def ask(settings: Settings) -> list[Found]:
    """Asks the first endpoint of TRITON_URL.

    Raises:
        LaunchError: it has no language model, or cannot be asked.
    """
    try:
        source = source_url.parse(settings.triton_source)
    except InvalidSource as error:
        raise LaunchError(f"TRITON_URL: {error}") from None
    if not isinstance(source, StaticList):
        raise LaunchError("TRITON_URL: name one Triton here, as grpc://host:port")
    address = min(one.address for one in source.addresses)
    secret = settings.triton_secret_value
    target = Target(address, source.is_tls, settings.triton_ca_file, secret)
    try:
        return asyncio.run(_asked(target))
    except NotReady as error:
        raise LaunchError(str(error)) from None


async def _asked(target: Target) -> list[Found]:
    async with TritonConnection(target) as triton:
        models = await triton.catalog.load()
        others = {one.model.name: one.notes for one in triton.catalog.others}
        return [Found(model=one, notes=others.get(one.name, ())) for one in models]


def checks(settings: Settings) -> list[Check]:
    """One for each model: what it is, and what it can and cannot do."""
    return [
        Check(name=one.model.name, ok=True, detail="; ".join(_described(one)))
        for one in ask(settings)
    ]


def _described(found: Found) -> Iterator[str]:
    model = found.model
    yield KINDS[model.facts.kind]
    if model.facts.kind is not Kind.TEXT:
        yield f"can {', '.join(sorted(model.capabilities - OURS))}"
        yield f"cannot {', '.join(sorted(CAPABILITIES - OURS - model.capabilities)) or 'nothing'}"
    yield f"images: {_images(model)}"
    if (reason := of_checkpoint(model.facts)[1]) is not None:
        yield f"its response template is not in use: {reason}"
    yield from found.notes
    if model.facts.adopted is not None and model.facts.pooling is None:
        yield "with a tokenizer in models.yaml: chats, exact counts of prompts, limits on them"


def _images(model: LoadedModel) -> str:
    kind, adopted = model.facts.kind, model.facts.adopted
    if "images" in model.capabilities:
        return f"yes, {SEES}"
    if kind is Kind.LLMAPI and adopted is not None:
        has_input = "image_url" in adopted.inputs
        return f"no: {OWN_TEMPLATE if has_input else 'this version has no input `image_url`'}"
    return f"no: {SEES_NOT[kind]}"


def entries(settings: Settings, tokenizer: Path | None, model: str | None) -> str:
    """Entries of models.yaml for the models of others, or for this one.

    Raises:
        LaunchError: there is none, or the tokenizer cannot be used.
    """
    found = [one.model for one in ask(settings) if one.model.facts.adopted is not None]
    found = [one for one in found if one.facts.pooling is None]
    if model is not None:
        found = [one for one in found if one.name == model]
    if not found:
        what = "no model of others" if model is None else f"no model {model!r} of others"
        raise LaunchError(f"Triton at {settings.triton_source} has {what}")
    made = {one.name: _entry(one, tokenizer) for one in found}
    return yaml.safe_dump(made, sort_keys=False) + "".join(map(_unmapped, found))


def _unmapped(model: LoadedModel) -> str:
    """A comment that names the inputs of a text model without a place in its entry."""
    adopted = model.facts.adopted
    if adopted is None or adopted.kind is not Kind.TEXT:
        return ""
    names = [ascii(name) for name in adopted.inputs if name != _prompt(adopted)]
    if not names:
        return ""
    return (
        f"# {model.name!a} also has the inputs {', '.join(names)}: callers set those that "
        "`inputs` maps, and the model's defaults hold for others\n"
    )


def _prompt(adopted: Adopted) -> str:
    texts = [name for name, datatype in adopted.inputs.items() if datatype == "BYTES"]
    return next((one for one in PROMPTS if one in texts), texts[0])


def _entry(model: LoadedModel, tokenizer: Path | None) -> dict[str, object]:
    adopted = model.facts.adopted
    assert adopted is not None
    entry: dict[str, object] = {"adopt": model.name}
    if tokenizer is not None:
        try:
            length = local_tokenizer(str(tokenizer)).context_length
        except BuildError as error:
            raise LaunchError(str(error)) from None
        entry |= {"tokenizer": str(tokenizer)}
        entry |= {} if length is None else {"context_length": length}
    if adopted.kind is Kind.TEXT:
        outputs = [name for name, datatype in adopted.outputs.items() if datatype == "BYTES"]
        entry["tensors"] = {"prompt": _prompt(adopted), "text": outputs[0], "inputs": {}}
    return entry


def written(entries: str, file: Path) -> None:
    """Adds them to the file, or makes it.

    Raises:
        LaunchError: it would not be a valid models file; it stays as it is.
    """
    indented = "".join(f"  {line}\n" for line in entries.splitlines())
    before = file.read_text(encoding="utf-8") if file.exists() else "models:\n"
    head, separator, rest = before.partition("models:\n")
    if not separator or (head and not head.endswith("\n")):
        raise LaunchError(f"{file} has no line `models:`; add to it:\n{indented}")
    draft = file.with_name(f".{file.name}.new")
    draft.write_text(f"{head}{separator}{indented}{rest}", encoding="utf-8")
    try:
        models_file.load(draft)
    except ModelsFileError as error:
        draft.unlink()
        raise LaunchError(f"{file} stays as it was: {error}") from None
    draft.replace(file)
