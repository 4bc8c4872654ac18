"""A model for vLLM: checks its folder, the options and the memory; the weights are served as they
are. artifacts/<model>/ has the tokenizer's tables, the facts, and links to the folders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from build_engines import fetch, tokenizer_tables, whole_folder
from build_engines.errors import BuildError
from build_engines.fetch import Fetch, Here
from build_engines.gpu import adapter, device, memory, verify
from build_engines.gpu.architecture import Architecture
from build_engines.gpu.recipe import known_shape, sharding_problems
from build_engines.json_files import read_object
from build_engines.models_file import VllmEntry
from build_engines.tables_step import LAYOUT, TOOLS, has_tables, in_child, versions
from build_engines.tool import Say
from build_engines.vllm import arguments
from build_engines.vllm.options import VllmOptions
from build_engines.whole_folder import Provenance, contents_hash

ENGINE, ADAPTERS = "engine", "lora"
CPU_KV_CACHE_GB = 4  # as the engine's own default


def is_built(name: str, entry: VllmEntry, artifacts: Path) -> bool:
    """Whether artifacts/<name>/ was made from these folders with this context length."""
    folders = _folders(entry, artifacts)
    is_here = all(folder.is_done for folder in folders.values())
    return is_here and whole_folder.is_made(artifacts / name, _provenance(entry, folders))


def needs_tools(entry: VllmEntry, artifacts: Path) -> bool:
    """Whether a build imports torch and transformers, or fetches something."""
    folders = _folders(entry, artifacts)
    is_here = all(folder.is_done for folder in folders.values())
    return not is_here or not has_tables(folders[ENGINE].folder)


def build(name: str, entry: VllmEntry, artifacts: Path, say: Say, *, machine_gb: float) -> None:
    """
    Args:
        machine_gb: the memory of this machine.

    Raises:
        BuildError: the model cannot be served with these options; the message has every reason.
    """

    def tell(line: str) -> None:
        say(f"{name}: {line}")

    folders = _folders(entry, artifacts)
    for folder in folders.values():
        if not folder.is_done:
            folder.run(tell)
    weights = folders[ENGINE].folder
    verify.weights(weights)
    config = fetch.config(folders[ENGINE]) or {}
    shape, unknown = known_shape(config)
    text = config.get("text_config", config)
    positions = shape.positions if shape else text.get("max_position_embeddings") or 0
    context_length = _context_length(entry, positions)
    gpu_gb = entry.vllm.memory_gb or device.installed(_devices(entry)).memory_gb
    found = [
        *_option_problems(entry.vllm),
        *(
            problems(entry, shape, context_length, gpu_gb=gpu_gb, machine_gb=machine_gb)
            if shape
            else ()
        ),
        *_adapter_problems(entry, folders),
    ]
    if found:
        raise BuildError("; ".join(found))
    for note in _notes(entry, shape, context_length, gpu_gb) if shape else [unknown]:
        tell(note)
    tell("making the tokenizer tables")
    options = entry.vllm.as_gpu(context_length)
    model = text | ({"vocab_size": shape.vocabulary} if shape else {})
    with whole_folder.made(artifacts / name, _provenance(entry, folders)) as target:
        in_child(
            tokenizer_tables.make,
            str(weights), model, str(target), context_length,
            memory.kv_token_bytes(shape, options) if shape else 0,
        )  # fmt: skip
        for link, folder in folders.items():
            (target / link).parent.mkdir(exist_ok=True)
            (target / link).symlink_to(folder.folder.resolve())
    tell(f"built, with {context_length} tokens of context")


def shown(name: str, entry: VllmEntry, artifacts: Path) -> Iterator[str]:
    """The files and links that a build would write."""
    for link, folder in _folders(entry, artifacts).items():
        if not folder.is_done:
            yield from folder.shown(folder.folder)
        yield f"link {artifacts / name / link} to {folder.folder}"
    names = (*tokenizer_tables.FILES, whole_folder.KEY_FILE)
    yield from (f"write {artifacts / name / file}" for file in names)


def _folders(entry: VllmEntry, artifacts: Path) -> dict[str, Fetch | Here]:
    """The weights and the adapters, by the names of their links."""
    adapters = entry.vllm.lora.adapters if entry.vllm.lora is not None else {}
    return {ENGINE: fetch.step(entry.weights, artifacts)} | {
        f"{ADAPTERS}/{name}": fetch.step(
            source, artifacts, name=f"adapter-{name}", needs=adapter.CONFIG
        )
        for name, source in adapters.items()
    }


def _devices(entry: VllmEntry) -> tuple[str, ...]:
    return tuple(map(str, entry.vllm.devices or ()))


def _context_length(entry: VllmEntry, positions: int) -> int:
    longest = positions or entry.context_length
    if not longest:
        raise BuildError("config.json has no max_position_embeddings: set context_length")
    return min(longest, entry.context_length or longest)


def _option_problems(options: VllmOptions) -> Iterator[str]:
    if options.environment is not None:
        verify.present(options.environment, "bin/activate", "bin/python3")
    yield from arguments.problems(options, arguments.installed() or max(arguments.RECORDS))


def problems(
    entry: VllmEntry,
    shape: Architecture,
    context_length: int,
    *,
    gpu_gb: float | None,
    machine_gb: float,
) -> Iterator[str]:
    """Why a model of this shape cannot be served.

    gpu_gb: the memory of one GPU; None if there is none here.
    """
    options, as_gpu = entry.vllm, entry.vllm.as_gpu(context_length)
    yield from sharding_problems(shape, as_gpu)
    if shape.native_quantization not in {None, *memory.WEIGHT_BYTES}:
        return
    found = memory.estimate(shape, as_gpu)
    if gpu_gb is None:
        yield from _cpu_problems(entry, found, context_length, machine_gb)
        return
    # Unlike TensorRT-LLM's fraction, vLLM's is of all memory, and includes weights and buffers.
    cache = options.gpu_memory_utilization * gpu_gb * 1e9 - found.weights - found.step
    if options.kv_cache_gb is not None:
        spare = gpu_gb * 1e9 - found.weights - found.step
        cache = min(options.kv_cache_gb * 1e9, spare)
    if cache < (needed := found.sequence(context_length)):
        yield (
            f"a GPU of {gpu_gb:g} GB has {found.weights / 1e9:.1f} GB of weights and "
            f"{found.step / 1e9:.1f} GB for activations, and about {max(0.0, cache) / 1e9:.1f} GB "
            f"of KV cache; one request of {context_length:,} tokens takes {needed / 1e9:.1f}: "
            "split the model over more GPUs, or lower context_length"
        )


def _cpu_problems(
    entry: VllmEntry, found: memory.Estimate, context_length: int, machine_gb: float
) -> Iterator[str]:
    """Without an NVIDIA GPU here, a KV cache of a given size is one in this machine's memory."""
    if entry.vllm.kv_cache_gb is None:
        return
    cache_gb = entry.vllm.kv_cache_gb
    needed_gb = found.weights / 1e9 + cache_gb
    if needed_gb > machine_gb:
        yield (
            f"weights and kv_cache_gb take {needed_gb:.1f} GB, and this machine has "
            f"{machine_gb:.1f}"
        )
    if cache_gb * 1e9 < found.sequence(context_length):
        yield (
            f"one request of {context_length:,} tokens takes "
            f"{found.sequence(context_length) / 1e9:.2f} GB of KV cache, and kv_cache_gb is "
            f"{cache_gb:g}: raise it, or lower context_length"
        )


def _adapter_problems(entry: VllmEntry, folders: dict[str, Fetch | Here]) -> Iterator[str]:
    for link, folder in folders.items():
        if link == ENGINE or entry.vllm.lora is None:
            continue
        config = read_object(folder.folder / adapter.CONFIG)
        verify.present(folder.folder, adapter.WEIGHTS)
        rank = config.get("r")
        if not isinstance(rank, int) or rank > entry.vllm.lora.max_rank:
            limit = entry.vllm.lora.max_rank
            yield f"{folder.folder} has rank {rank}: lora.max_rank is {limit}, raise it"


def _notes(
    entry: VllmEntry, shape: Architecture, context_length: int, gpu_gb: float | None
) -> Iterator[str]:
    if gpu_gb is not None:
        as_gpu = entry.vllm.as_gpu(context_length)
        yield from memory.arithmetic(shape, as_gpu, memory_gb=None)
    elif entry.vllm.kv_cache_gb is None:
        yield (
            "memory is not checked: nvidia-smi is missing, and models.yaml has no vllm.memory_gb; "
            f"on a CPU, vllm.kv_cache_gb is {CPU_KV_CACHE_GB}"
        )


def _provenance(entry: VllmEntry, folders: dict[str, Fetch | Here]) -> Provenance:
    # All options, so that each change of them is checked.
    made_of = [entry.runtime, entry.vllm.model_dump_json(), str(entry.context_length), str(LAYOUT)]
    for link, folder in folders.items():  # they are linked, so their places matter
        made_of += [link, str(folder.folder.resolve()), contents_hash(folder.folder)]
    key = hashlib.sha256("\n".join(made_of).encode()).hexdigest()
    return Provenance(key=key, tools=versions(TOOLS))


def vocabulary_of(folder: Path) -> int | None:
    """The width of a built model's logits; None if its configuration does not say."""
    shape, _ = known_shape(config := _config(folder))
    return shape.vocabulary if shape else config.get("text_config", config).get("vocab_size")


def reads_images(folder: Path) -> bool:
    """Whether a built model does. Older versions of vLLM prepare images in the event loop."""
    version = arguments.installed() or arguments.HAS_THREADS
    return "vision_config" in _config(folder) and version >= arguments.HAS_THREADS


def _config(folder: Path) -> dict[str, Any]:
    return fetch.config(Here("weights", folder / ENGINE)) or {}
