"""Checks a quantized checkpoint: tensors, their types and scales, configuration, tokenizer files.

Forms are those that nvidia-modelopt 0.37 exports and that TensorRT-LLM's PyTorch runtime reads:
tensorrt_llm/_torch/modules/linear.py (load_weights of each LinearMethod, commit ed53795b).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from build_engines.errors import BuildError
from build_engines.gpu.options import GpuOptions
from build_engines.json_files import read_object

QUANTIZED, CONFIG = "hf_quant_config.json", "config.json"
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "generation_config.json",
)
FLOATS = ("F32", "BF16", "F16")
HEADER_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """begin, end: bytes in the file."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> bytes:
        """Raw: safetensors gives numpy no numbers of 8 bits, nor those of bfloat16."""
        with self.file.open("rb") as opened:
            opened.seek(self.begin)
            return opened.read(self.end - self.begin)


Tensors = dict[str, Tensor]


def tensors(folder: Path) -> Tensors:
    """Name -> tensor, for all .safetensors files of a folder.

    Raises:
        BuildError: a file is cut off, or is not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    found: Tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="np"), file.open("rb") as opened:
                length = HEADER_LENGTH.unpack(opened.read(HEADER_LENGTH.size))[0]
                header = json.loads(opened.read(length))
        except (OSError, SafetensorError) as error:
            raise BuildError(f"{file} cannot be read: {error}") from error
        header.pop("__metadata__", None)
        start = HEADER_LENGTH.size + length
        for name, about in header.items():
            begin, end = about["data_offsets"]
            found[name] = Tensor(
                name=name,
                file=file,
                dtype=about["dtype"],
                shape=tuple(about["shape"]),
                begin=start + begin,
                end=start + end,
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a weight [rows, columns] is stored.

    packed: the dimension along which two numbers share a byte. block: columns with one scale, 0 for
    one scale of the whole weight. scalars: further scales, one number each.
    """

    algorithm: str
    dtype: str
    scale_dtypes: tuple[str, ...] = FLOATS
    packed: int | None = None
    block: int = 0
    scalars: tuple[str, ...] = ()

    def stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(n // 2 if axis == self.packed else n for axis, n in enumerate(shape))

    def scales(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], shape[1] // self.block) if self.block else ()


FORMS = {
    "fp8": Form(algorithm="FP8", dtype="F8_E4M3", scalars=("input_scale",)),
    "int4_awq": Form(algorithm="W4A16_AWQ", dtype="U8", packed=0, block=128),
    "w4a8_awq": Form(
        algorithm="W4A8_AWQ",
        dtype="U8",
        packed=0,
        block=128,
        scalars=("input_scale", "weight_scale_2"),
    ),
    "nvfp4": Form(
        algorithm="NVFP4",
        dtype="U8",
        scale_dtypes=("F8_E4M3",),
        packed=1,
        block=16,
        scalars=("input_scale", "weight_scale_2"),
    ),
}


def check(folder: Path, source: Path, options: GpuOptions) -> None:
    """
    Args:
        source: the folder that was quantized.

    Raises:
        BuildError: the checkpoint is not a whole one of these options; the message says why.
    """
    form = FORMS[str(options.quantization)]
    written = read_object(folder / QUANTIZED).get("quantization", {})
    _same(folder, "quant_algo", written.get("quant_algo"), form.algorithm)
    cache = "FP8" if options.kv_cache.dtype == "fp8" else None
    _same(folder, "kv_cache_quant_algo", written.get("kv_cache_quant_algo"), cache)
    if form.block:
        _same(folder, "group_size", written.get("group_size"), form.block)
    config = read_object(folder / CONFIG).get("quantization_config", {})
    _same(folder, "quantization_config.quant_algo", config.get("quant_algo"), form.algorithm)
    missing = [n for n in TOKENIZERS if (source / n).is_file() and not (folder / n).is_file()]
    if missing:
        raise BuildError(f"{folder} has no {missing[0]}, which {source} has")
    found, before = tensors(folder), tensors(source)
    excluded = [str(name) for name in written.get("exclude_modules") or ()]
    problem = next(_problems(found, before, form, excluded, has_kv_scales=cache is not None), None)
    if problem is not None:
        raise BuildError(f"{folder}: {problem}")


def _same(folder: Path, name: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise BuildError(f"{folder} was written with {name} {found}, not {wanted}")


def _problems(
    found: Tensors, before: Tensors, form: Form, excluded: list[str], *, has_kv_scales: bool
) -> Iterator[str]:
    """before: the tensors of the source; empty if that has no .safetensors files."""
    weights = {name: tensor for name, tensor in found.items() if name.endswith(".weight")}
    quantized = [name for name, tensor in weights.items() if tensor.dtype == form.dtype]
    layers = {_layer(name) for name in found} - {None}
    if unquantized := layers - {_layer(name) for name in quantized}:
        yield f"layer {min(filter(None, unquantized))} has no quantized matrix"
    for name, tensor in before.items():
        if name not in found:
            if not _may_be_tied(name):
                yield f"{name} is missing"
        elif _is_to_quantize(name, tensor, excluded):
            yield from _weight_problems(found, name, tensor.shape, form)
        elif found[name].shape != tensor.shape:
            yield f"{name} has the shape {found[name].shape}, not {tensor.shape}"
    for name in quantized:
        yield from _scale_problems(found, name.removesuffix("weight"), form)
    if has_kv_scales and not any(name.endswith("k_proj.k_scale") for name in found):
        yield "there are no scales of the KV cache"


def _weight_problems(
    found: Tensors, name: str, shape: tuple[int, ...], form: Form
) -> Iterator[str]:
    tensor, scale = found[name], found.get(f"{name}_scale")
    if tensor.dtype != form.dtype:
        yield f"{name} is {tensor.dtype}, not {form.dtype}"
    elif tensor.shape != form.stored(shape):
        yield f"{name} has the shape {tensor.shape}, not {form.stored(shape)}"
    elif scale is not None and scale.shape not in {form.scales(shape), (*form.scales(shape), 1)}:
        yield f"{scale.name} has the shape {scale.shape}, not {form.scales(shape)}"


def _scale_problems(found: Tensors, prefix: str, form: Form) -> Iterator[str]:
    blocks = found.get(f"{prefix}weight_scale")
    if blocks is None or blocks.dtype not in form.scale_dtypes:
        yield f"{prefix}weight_scale is {'missing' if blocks is None else blocks.dtype}"
        return
    if not _is_finite(blocks):
        yield f"{blocks.name} has a number that is not finite"
    for name in (*form.scalars, *(() if form.block else ("weight_scale",))):
        scalar = found.get(f"{prefix}{name}")
        if scalar is None or math.prod(scalar.shape) != 1 or scalar.dtype != "F32":
            yield f"{prefix}{name} is {'missing' if scalar is None else 'not one 32-bit number'}"
        elif not 0 < struct.unpack("<f", scalar.read())[0] < math.inf:
            yield f"{prefix}{name} is not above zero and finite"


def _is_finite(tensor: Tensor) -> bool:
    """Whether no number has an exponent of ones only; float8 e4m3 has NaN, and no infinity."""
    import numpy

    widths = {"F32": ("<u4", 0x7F800000), "BF16": ("<u2", 0x7F80), "F16": ("<u2", 0x7C00)}
    width, ones = widths.get(tensor.dtype, ("u1", 0x7F))
    bits = numpy.frombuffer(tensor.read(), dtype=width)
    return not bool(numpy.any((bits & ones) == ones))


def _is_to_quantize(name: str, tensor: Tensor, excluded: list[str]) -> bool:
    """Every matrix of a layer, but for those that the configuration names."""
    module = name.removesuffix(".weight")
    return (
        _layer(name) is not None
        and module != name
        and len(tensor.shape) == 2
        and not any(fnmatchcase(module, pattern) for pattern in excluded)
    )


def _layer(name: str) -> str | None:
    """`0` of model.layers.0.mlp.up_proj.weight."""
    _, separator, tail = name.partition(".layers.")
    return tail.split(".")[0] if separator else None


def _may_be_tied(name: str) -> bool:
    """A tied head is stored once. Old checkpoints also hold the rotary frequencies."""
    return name in {"lm_head.weight"} or name.endswith("rotary_emb.inv_freq")
