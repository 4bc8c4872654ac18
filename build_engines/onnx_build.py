"""A model for the CPU: weights -> artifacts/<model>/, which appears only when it is whole.

A Hugging Face folder is converted with onnxruntime-genai's model builder, in its own process, so
that torch and its memory are gone afterwards. A GGUF file first becomes a Hugging Face folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from build_engines import (
    fetch,
    gguf_weights,
    onnx_agreement,
    onnx_folder,
    onnx_graph,
    onnx_int8,
    tokenizer_tables,
    tool,
    whole_folder,
)
from build_engines.errors import BuildError
from build_engines.gguf_file import GgufFile
from build_engines.gpu.architecture import Architecture
from build_engines.json_files import read_object
from build_engines.machine import CPU_INFO, adds_int8_exactly, is_x86, memory_bytes
from build_engines.models_file import OnnxEntry, Precision
from build_engines.onnx_folder import CONFIG
from build_engines.step import Step
from build_engines.tables_step import (
    LAYOUT,
    TOOLS,
    copy_tables,
    facts_in,
    has_tables,
    in_child,
    versions,
)
from build_engines.tool import Say
from build_engines.weights import gguf_in
from build_engines.whole_folder import Provenance, contents_hash

SMALL = 1e9  # parameters: as int8, less than a gigabyte on any machine
BYTES = {"fp32": 4.0, "int8": 1.2}  # of a parameter, with scales and what is not quantized
SHARE = 0.5  # of the machine's memory that weights may take
# The largest model whose int8 form is made of its fp32 graph, and the bytes per parameter of that.
MOST_BY_TOKEN = 3e9  # parameters
BY_TOKEN_BYTES = 10.0

# More than the default options of the builder. The runtime needs whole rows: a KV cache that slides
# with the window does not keep them. k_quant_mixed: 8 bits for the matrices where they matter most.
EXTRA = "windowed_kv_cache=false"
EXTRA_INT4 = "algo_config=k_quant_mixed"


@dataclass(frozen=True, slots=True)
class ChosenPrecision:
    """by_token: `onnx_int8` makes int8 of the builder's fp32 graph; else the builder makes it.

    keeps_blocks: those of a GGUF file in Q4_0 and Q8_0 stay as they are.
    """

    precision: Precision
    reason: str
    by_token: bool = False
    keeps_blocks: bool = False

    @property
    def builders(self) -> Precision:
        """What the builder is asked for."""
        return "fp32" if self.by_token else self.precision

    @property
    def halves_cache(self) -> bool:
        """Whether keys, values and embeddings have 16 bits. fp32 is fp32 throughout.

        On ARM, ONNX Runtime's attention would add in 16 bits, too.
        """
        return self.precision != "fp32" and is_x86()

    def __str__(self) -> str:
        by_token = "; activations are quantized per token" if self.by_token else ""
        return f"{self.precision}, {self.reason}{by_token}"


def is_exported(folder: Path) -> bool:
    """Whether the folder is already an ONNX folder."""
    return (folder / CONFIG).is_file()


def command(weights: Path, target: Path, *, precision: str) -> list[str]:
    options = ["-i", str(weights), "-o", str(target), "-p", precision, "-e", "cpu"]
    options += ["-c", str(_cache(target)), "--extra_options", EXTRA]
    if precision == "int4":
        options.append(EXTRA_INT4)
    return [sys.executable, "-m", "onnxruntime_genai.models.builder", *options]


def export(
    weights: Path,
    target: Path,
    *,
    chosen: ChosenPrecision,
    log: Path,
    say: tool.Say,
    blocks: Path | None = None,
) -> None:
    """Writes genai_config.json, model.onnx and its data to `target`.

    blocks: the GGUF file whose blocks stay as they are.

    Raises:
        BuildError: the builder failed; the message has its last lines, `log` all of them.
    """
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    try:
        tool.run(
            command(weights, target, precision=chosen.builders),
            log=log,
            say=say,
            environment=environment,
        )
    except BuildError as error:
        raise BuildError(
            f"onnxruntime-genai's builder could not convert {weights}: {error}"
        ) from error
    finally:
        shutil.rmtree(_cache(target), ignore_errors=True)
    if not is_exported(target):
        raise BuildError(f"onnxruntime-genai's builder wrote no {CONFIG} (its output: {log})")
    _drop_nulls(target / CONFIG)
    if chosen.by_token:
        in_child(onnx_int8.quantize, str(target), str(weights))
    gguf = None if blocks is None else str(blocks)
    in_child(onnx_graph.rewrite, str(target), gguf, chosen.halves_cache)


def _cache(target: Path) -> Path:
    return target.with_name("cache")


def _drop_nulls(config: Path) -> None:
    """Removes the nulls of unset search options, which onnxruntime-genai 0.11 rejects."""
    fields = json.loads(config.read_text())
    fields["search"] = {k: v for k, v in fields["search"].items() if v is not None}
    config.write_text(json.dumps(fields, indent=4))


def is_built(name: str, entry: OnnxEntry, artifacts: Path) -> bool:
    """Whether artifacts/<name>/ was made from these weights with these options."""
    weights = _source(entry, artifacts)
    return weights.is_done and whole_folder.is_made(artifacts / name, _provenance(entry, weights))


def needs_tools(entry: OnnxEntry, artifacts: Path) -> bool:
    """Whether a build imports torch, transformers and onnxruntime-genai, or fetches the weights."""
    weights = _source(entry, artifacts)
    return not weights.is_done or not _is_ready(weights.folder)


def build(name: str, entry: OnnxEntry, artifacts: Path, say: Say) -> None:
    """
    Raises:
        BuildError: the model cannot be built or served.
    """

    def tell(line: str) -> None:
        say(f"{name}: {line}")

    source = _source(entry, artifacts)
    if not source.is_done:
        source.run(tell)
    with (
        whole_folder.made(artifacts / name, _provenance(entry, source)) as target,
        _readable(source.folder, _rewritten(artifacts, name), tell) as weights,
    ):
        log = artifacts / f"{name}.build.log"
        _export(entry, source.folder, weights, target, log=log, say=tell)
        if _is_ready(weights):
            context_length = _copy_tables(entry, weights, target)
        else:
            context_length = _tables(entry, weights, target, tell)
    tell(f"built, with {context_length} tokens of context")


def shown(name: str, entry: OnnxEntry, artifacts: Path) -> Iterator[str]:
    """The commands that a build would run, and the files that it would write."""
    source, target = _source(entry, artifacts), artifacts / name
    weights = source.folder
    if not source.is_done:
        yield from source.shown(weights)
    if gguf_in(weights) is not None:
        yield f"write {weights} as a Hugging Face folder to {_rewritten(artifacts, name)}"
        weights = _rewritten(artifacts, name)
    if source.is_done and is_exported(weights):
        yield f"link {target / 'engine'} to {weights}"
    else:
        chosen = chosen_precision(entry, source.folder)
        yield tool.shown(command(weights, target / "engine", precision=chosen.builders))
        yield f"make {target / 'engine'} {chosen}"
    names = (*tokenizer_tables.FILES, whole_folder.KEY_FILE)
    yield from (f"write {target / file}" for file in names)


def _source(entry: OnnxEntry, artifacts: Path) -> fetch.Fetch | fetch.Here:
    return fetch.step(entry.weights, artifacts, reads_gguf=True)


def _rewritten(artifacts: Path, name: str) -> Path:
    """The Hugging Face folder of a GGUF file, which is there during the build only."""
    return artifacts / f"{name}.weights"


@contextmanager
def _readable(weights: Path, rewritten: Path, say: Say) -> Iterator[Path]:
    """The weights as a folder that the tools of a build read."""
    if gguf_in(weights) is None:
        yield weights
        return
    say(f"writing {weights} as a Hugging Face folder")
    shutil.rmtree(rewritten, ignore_errors=True)
    rewritten.mkdir()
    try:
        in_child(gguf_weights.write_folder, weights, rewritten)
        yield rewritten
    finally:
        shutil.rmtree(rewritten)


def _export(
    entry: OnnxEntry, source: Path, weights: Path, target: Path, *, log: Path, say: Say
) -> None:
    """source: the folder or the GGUF file of models.yaml. weights: the same as a folder."""
    engine = target / "engine"
    if is_exported(weights):
        say(f"using the ONNX folder {weights} as it is")
        engine.symlink_to(weights.resolve())
    else:
        chosen = chosen_precision(entry, source)
        blocks = source if chosen.keeps_blocks else None
        say(f"converting {source} to ONNX ({chosen})")
        export(weights, engine, chosen=chosen, log=log, say=say, blocks=blocks)
        if chosen.precision != "fp32" and _fits(_parameters(weights), "fp32", memory_bytes()):
            found = in_child(onnx_agreement.measure, str(weights), str(engine))
            say(f"{chosen.precision}: {found}")


def chosen_precision(entry: OnnxEntry, weights: Path) -> ChosenPrecision:
    """weights: a Hugging Face folder, or a GGUF file."""
    if entry.onnx.precision is not None:
        chosen = ChosenPrecision(entry.onnx.precision, "as models.yaml says")
    elif gguf_in(weights) is not None and gguf_weights.has_blocks(weights):
        reason = "but blocks of Q4_0 and Q8_0 stay as they are"
        return ChosenPrecision("int8", reason, keeps_blocks=True)
    else:
        chosen = default_precision(_parameters(weights), memory_bytes())
    is_exact = adds_int8_exactly(is_x86=is_x86(), cpu_info=CPU_INFO.read_text())
    if chosen.precision != "int8" or not is_exact:
        return chosen
    by_token = can_quantize_by_token(_parameters(weights), memory_bytes())
    return replace(chosen, by_token=by_token)


def can_quantize_by_token(parameters: int, machine_bytes: int) -> bool:
    return parameters <= MOST_BY_TOKEN and BY_TOKEN_BYTES * parameters < machine_bytes


def default_precision(parameters: int, machine_bytes: int) -> ChosenPrecision:
    if parameters < SMALL:
        reason = "which is near fp32, for a model of less than a billion parameters"
        return ChosenPrecision("int8", reason)
    if _fits(parameters, "int8", machine_bytes):
        reason = f"which takes less than {SHARE:.0%} of this machine's memory"
        return ChosenPrecision("int8", reason)
    reason = f"because int8 would take over {SHARE:.0%} of this machine's memory"
    return ChosenPrecision("int4", reason)


def _parameters(weights: Path) -> int:
    if gguf_in(weights) is not None:
        return GgufFile.open(weights).size
    return Architecture.read(read_object(weights / "config.json")).parameters


def _fits(parameters: int, precision: Precision, machine_bytes: int) -> bool:
    return BYTES[precision] * parameters < SHARE * machine_bytes


def _copy_tables(entry: OnnxEntry, weights: Path, target: Path) -> int:
    """Returns the context length, in tokens."""
    facts = facts_in(weights)
    context_length = min(facts.context_length, entry.context_length or facts.context_length)
    copy_tables(weights, target, replace(facts, context_length=context_length))
    return context_length


def _tables(entry: OnnxEntry, weights: Path, target: Path, say: Say) -> int:
    """Returns the context length, in tokens."""
    engine = target / "engine"
    checked = in_child(onnx_folder.check, str(engine))
    say("making the tokenizer tables")
    context_length = min(checked.context_length, entry.context_length or checked.context_length)
    model = json.loads((engine / onnx_folder.CONFIG).read_text())["model"]
    in_child(
        tokenizer_tables.make,
        str(weights), model, str(target), context_length, checked.kv_token_bytes,
    )  # fmt: skip
    return context_length


def _is_ready(weights: Path) -> bool:
    """Whether the folder has all that a build makes, as the shipped demo model has."""
    return is_exported(weights) and has_tables(weights)


def _provenance(entry: OnnxEntry, weights: Step) -> Provenance:
    """The weights, the build's options, and the versions of the tools that it needs."""
    made_of = [
        entry.runtime,
        str(entry.context_length),
        str(LAYOUT),
        contents_hash(gguf_in(weights.folder) or weights.folder),
    ]
    tools: dict[str, str | None] = {}
    if is_exported(weights.folder):
        made_of.append(str(weights.folder.resolve()))  # it is linked, so its place matters
    else:
        chosen = chosen_precision(entry, weights.folder)
        form = "two-byte head" if chosen.by_token else "False"  # of others as before: they stay
        made_of.append(f"{chosen.precision} {form} {chosen.keeps_blocks}")
        made_of.append(f"halves cache: {chosen.halves_cache}")
        tools |= versions(["onnxruntime-genai"])
    if gguf_in(weights.folder) is not None:
        tools |= versions(["gguf", "transformers"])
    if not _is_ready(weights.folder):
        tools |= versions(TOOLS)
    return Provenance(key=hashlib.sha256("\n".join(made_of).encode()).hexdigest(), tools=tools)
