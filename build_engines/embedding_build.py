"""An embedding model or a cross-encoder: its files, and what they say of it, -> artifacts/<model>/.

Read in huggingface/sentence-transformers: modules.json, 1_Pooling/config.json,
sentence_bert_config.json, and the activation of a cross-encoder in config.json. The tables of
static models are as MinishLab/model2vec and dleemiller/WordLlama write them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from build_engines import fetch, whole_folder
from build_engines.errors import BuildError
from build_engines.json_files import read_object
from build_engines.models_file import EmbeddingEntry
from build_engines.tables_step import in_child
from build_engines.tool import Say
from build_engines.whole_folder import Provenance

LAYOUT = "1"
PARAMETERS = "parameters.json"
FILES = ("model.onnx", "onnx/model.onnx", "model.safetensors")
STATIC_CONTEXT = 8_192  # tokens: such a model has no limit of its own
UNBOUNDED = 10**9  # transformers writes 10**30 where a tokenizer has no limit
TABLE_TYPES = {"F16": "float16", "F32": "float32"}
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")  # the first two are not used
POOLING_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none"}
# Nodes that quantize by the largest activation of the whole batch.
DYNAMIC = (b"DynamicQuantizeLinear", b"DynamicQuantizeMatMul", b"DynamicQuantizeLSTM")


def weights(entry: EmbeddingEntry, artifacts: Path) -> fetch.Fetch | fetch.Here:
    """Raises BuildError."""
    needs = entry.embedding.file or FILES[1]
    return fetch.step(entry.weights, artifacts, needs=needs)


def is_built(name: str, entry: EmbeddingEntry, artifacts: Path) -> bool:
    """Whether artifacts/<name>/ was made from these files with these options."""
    source = weights(entry, artifacts)
    return source.is_done and whole_folder.is_made(
        artifacts / name, _provenance(entry, source.folder)
    )


def build(name: str, entry: EmbeddingEntry, artifacts: Path, say: Say) -> None:
    """
    Raises:
        BuildError: the model cannot be served.
    """
    source = weights(entry, artifacts)
    if not source.is_done:
        source.run(lambda line: say(f"{name}: {line}"))
    folder = source.folder
    with whole_folder.made(artifacts / name, _provenance(entry, folder)) as target:
        found = {"created": str(int(time.time())), **_facts(entry, folder)}
        shutil.copyfile(folder / entry.embedding.tokenizer, target / "tokenizer.json")
        (target / "weights").symlink_to(folder.resolve())
        (target / PARAMETERS).write_text(json.dumps(found, indent=2), encoding="utf-8")
    what = "scores pairs of texts" if found["task"] == "score" else f"{found['width']} dimensions"
    say(f"{name}: built, {what}, {found['context_length']} tokens of context")


def shown(name: str, entry: EmbeddingEntry, artifacts: Path) -> Iterator[str]:
    """The files that a build would write."""
    source = weights(entry, artifacts)
    if not source.is_done:
        yield from source.shown(source.folder)
    yield f"link {artifacts / name / 'weights'} to {source.folder}"
    for file in ("tokenizer.json", PARAMETERS, whole_folder.KEY_FILE):
        yield f"write {artifacts / name / file}"


def parameters(name: str, artifacts: Path) -> dict[str, str]:
    """The parameters of the Triton model that serves a built model."""
    found: dict[str, str] = read_object(artifacts / name / PARAMETERS)
    return {"artifacts_dir": f"../../{name}", **found}


def _provenance(entry: EmbeddingEntry, folder: Path) -> Provenance:
    """Files count by size and time: the largest are read when they are served, not by the build."""
    options = entry.embedding
    files = [_file(entry, folder), folder / options.tokenizer, *sorted(folder.glob("**/*.json"))]
    made_of = [LAYOUT, options.model_dump_json(), str(entry.context_length)]
    for file in files:
        if not file.is_file():
            raise BuildError(f"{folder} has no {file.relative_to(folder)}")
        made_of.append(f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}")
    return Provenance(key=hashlib.sha256("\n".join(made_of).encode()).hexdigest())


def _file(entry: EmbeddingEntry, folder: Path) -> Path:
    """The graph or the table."""
    names = FILES if entry.embedding.file is None else (entry.embedding.file,)
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise BuildError(f"{folder} has no {' and no '.join(names)}: set embedding.file")
    return found


def _facts(entry: EmbeddingEntry, folder: Path) -> dict[str, str]:
    file, options = _file(entry, folder), entry.embedding
    tokenizer = read_object(folder / options.tokenizer)
    config = _object(folder / "config.json")
    if file.suffix == ".onnx":
        found = _graph(entry, folder, file, config)
    else:
        found = _table(entry, file, config, tokenizer)
    length = int(found["context_length"])
    if (entry.context_length or 0) > length:
        raise BuildError(f"context_length is {entry.context_length}: the model has {length}")
    shorter = sorted({*options.dimensions})
    if shorter and (found["task"] == "score" or shorter[-1] > int(found["width"])):
        raise BuildError(f"dimensions of up to {shorter[-1]}: the model has {found['width']}")
    return {
        **found,
        "context_length": str(entry.context_length or length),
        "dimensions": ",".join(map(str, shorter)),
        "file": str(file.relative_to(folder)),
    }


def _table(
    entry: EmbeddingEntry, file: Path, config: dict[str, Any], tokenizer: dict[str, Any]
) -> dict[str, str]:
    """The place of the only tensor of a static model's safetensors file."""
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(size, file.stat().st_size)))
        tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
        (table,) = tensors
        rows, width = table["shape"]
        dtype = TABLE_TYPES[table["dtype"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BuildError(
            f"{file} is not the table of a static model: one tensor of two dimensions, F16 or F32. "
            "A BERT-like model needs its ONNX graph"
        ) from error
    if entry.embedding.pooling == "cls" or entry.embedding.threads is not None:
        raise BuildError("a static model has no embedding.threads, and takes the mean")
    model = tokenizer.get("model", {})
    vocab = model.get("vocab", {})
    if len(vocab) > rows:
        raise BuildError(f"{file} has {rows} vectors, and the tokenizer {len(vocab)} tokens")
    unknown = vocab.get(model.get("unk_token")) if isinstance(vocab, dict) else model.get("unk_id")
    normalizes = entry.embedding.normalize
    return {
        "task": "embed",
        "width": str(width),
        "vocab_size": str(rows),
        "context_length": str(entry.context_length or STATIC_CONTEXT),
        "normalize": _flag(config.get("normalize", True) if normalizes is None else normalizes),
        "table_shape": f"{rows},{width}",
        "table_dtype": dtype,
        "table_offset": str(8 + size + table["data_offsets"][0]),
        **({"unknown_id": str(unknown)} if isinstance(unknown, int) else {}),
    }


def _graph(
    entry: EmbeddingEntry, folder: Path, file: Path, config: dict[str, Any]
) -> dict[str, str]:
    inputs, outputs = in_child(graph_tensors, str(file))
    if unknown := {*inputs} - {"input_ids", "attention_mask", "token_type_ids"}:
        raise BuildError(f"{file} needs the input {min(unknown)!r}, which no tokenizer gives")
    is_score = any("ForSequenceClassification" in one for one in config.get("architectures") or ())
    of_tokens = [name for name, shape in outputs.items() if len(shape) == 3]
    output = next(iter(of_tokens if of_tokens and not is_score else outputs))
    last = outputs[output][-1]
    width = last if isinstance(last, int) else 1 if is_score else config.get("hidden_size")
    if is_score and (width != 1 or len(config.get("id2label") or "1") != 1):
        raise BuildError(f"{file} classifies into several labels: a cross-encoder has one")
    if not isinstance(width, int):
        raise BuildError(f"neither {file.name} nor config.json says how long the vectors are")
    if is_score and entry.embedding.pooling is not None:
        raise BuildError("a cross-encoder has no embedding.pooling")
    pooling, normalizes = _pooling(entry, folder, needs_one=output in of_tokens)
    graph = file.read_bytes()
    return {
        "task": "score" if is_score else "embed",
        "width": str(width),
        "vocab_size": str(config.get("vocab_size") or _lacks(folder, "vocab_size")),
        "context_length": str(_context_length(folder, config)),
        "output": output,
        "pooling": pooling,
        "normalize": _flag(normalizes),
        "pad_id": str(config.get("pad_token_id") or 0),
        "runs_alone": _flag(any(node in graph for node in DYNAMIC)),
        "threads": str(entry.embedding.threads or 0),  # 0: one per core
        **({"activation": _activation(config)} if is_score else {}),
    }


def graph_tensors(file: str) -> tuple[list[str], dict[str, list[Any]]]:
    """The names of the inputs, and the shapes of the outputs. Called in a child process.

    Raises:
        BuildError: ONNX Runtime is not installed, or cannot load the graph.
    """
    try:
        import onnxruntime

        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises no narrower one
        raise BuildError(f"ONNX Runtime cannot load {file}: {error}") from error
    outputs = {one.name: list(one.shape) for one in session.get_outputs()}
    return [one.name for one in session.get_inputs()], outputs


def _pooling(entry: EmbeddingEntry, folder: Path, *, needs_one: bool) -> tuple[str, bool]:
    """The pooling, and whether vectors are normalized: models.yaml's word comes first."""
    options, pooling, normalizes = entry.embedding, None, None
    if (folder / "modules.json").is_file():
        normalizes = False
        for module in json.loads((folder / "modules.json").read_text(encoding="utf-8")):
            match str(module["type"]).rpartition(".")[2]:
                case "Pooling":
                    pooling = _mode(folder / module["path"] / "config.json")
                case "Normalize":
                    normalizes = True
                case "Transformer":
                    pass
                case kind:
                    raise BuildError(f"{folder}/modules.json has a {kind}, which is not served")
    if options.normalize is not None:
        normalizes = options.normalize
    pooling = options.pooling or pooling
    if needs_one and pooling is None:
        raise BuildError(f"{folder} has no modules.json: set embedding.pooling to mean or cls")
    return (pooling or "none") if needs_one else "none", normalizes is not False


def _mode(file: Path) -> str:
    config = read_object(file)
    set_ones = [name for name, value in config.items() if value is True and "_mode_" in name]
    found = config.get("pooling_mode") if not set_ones else POOLING_MODES.get(set_ones[0])
    if found not in POOLING_MODES.values() or len(set_ones) > 1:
        raise BuildError(f"{file}: pooling must be mean or cls")
    return str(found)


def _context_length(folder: Path, config: dict[str, Any]) -> int:
    positions = config.get("max_position_embeddings")
    if positions and config.get("model_type") in OFFSET_POSITIONS:
        positions -= 2
    lengths = (
        positions,
        _object(folder / "sentence_bert_config.json").get("max_seq_length"),
        _object(folder / "tokenizer_config.json").get("model_max_length"),
    )
    known = [int(one) for one in lengths if one and one < UNBOUNDED]
    return min(known) if known else _lacks(folder, "max_position_embeddings")


def _activation(config: dict[str, Any]) -> str:
    """What a cross-encoder's score goes through: the sigmoid, unless its config names another."""
    named = (config.get("sentence_transformers") or {}).get("activation_fn")
    named = named or config.get("sbert_ce_default_activation_function") or "Sigmoid"
    kind = str(named).rpartition(".")[2]
    if kind not in ACTIVATIONS:
        raise BuildError(f"config.json has the activation {named!r}: Sigmoid or Identity is served")
    return ACTIVATIONS[kind]


def _lacks(folder: Path, field: str) -> int:
    raise BuildError(f"{folder}/config.json has no {field}")


def _object(file: Path) -> dict[str, Any]:
    return read_object(file) if file.is_file() else {}


def _flag(value: object) -> str:
    return "1" if value else "0"
