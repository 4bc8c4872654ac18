"""GGUF, llama.cpp's file format, as weights of the onnx runtime.

`build` runs `write_folder` in a child process, as it imports torch. `matrices` returns the weights
that the file has in blocks of 32, so that they are not quantized twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from build_engines import gguf_config, gguf_tokenizer
from build_engines.errors import BuildError
from build_engines.gguf_file import GgufFile

BLOCK = 32  # weights that share a scale
SHARD_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedMatrix:
    """A matrix [out, in] in blocks of 32 along `in`: value = scale * (code - zero).

    The zero is 8 for 4 bits, and 128 for 8 bits.
    """

    bits: int  # 4 or 8
    codes: npt.NDArray[np.uint8]  # [out, in], unpacked: 0..15 or 0..255
    scales: npt.NDArray[np.float32]  # [out, in // 32]

    def rows(self, order: npt.NDArray[np.intp] | slice) -> QuantizedMatrix:
        return QuantizedMatrix(bits=self.bits, codes=self.codes[order], scales=self.scales[order])


def has_blocks(gguf: Path) -> bool:
    """Whether `matrices` has most of the weights. Raises BuildError: the file cannot be read."""
    unpacked = total = 0
    for name, tensor in GgufFile.open(gguf).tensors.items():
        if name.startswith("blk."):  # of a layer: the embedding often has more bits
            total += math.prod(tensor.shape)
            unpacked += math.prod(tensor.shape) * (tensor.kind.name in UNPACKED)
    return 2 * unpacked > total


def matrices(gguf: Path) -> dict[str, QuantizedMatrix]:
    """The weights that the file has in blocks of 32, by their name in transformers.

    Raises:
        BuildError: the file cannot be read, or is of an unknown architecture.
    """
    file = GgufFile.open(gguf)
    found = {}
    for parameter, name in file.parameters():
        tensor = file.tensors[name]
        unpack = UNPACKED.get(tensor.kind.name)
        if unpack is None or len(tensor.shape) != 2:
            continue
        matrix, order = unpack(tensor.data), file.row_order(name)
        found[parameter] = matrix if order is None else matrix.rows(order)
    return found


def write_folder(gguf: Path, target: Path) -> None:
    """Writes a Hugging Face folder with weights of 32-bit floats into the folder `target`.

    Raises:
        BuildError: the file cannot be read, or holds a model that cannot be served.
    """
    file = GgufFile.open(gguf)
    config, tokenizer = gguf_config.config(file), gguf_tokenizer.tokenizer(file)
    _check_tensors(file, config)
    _write_json(target / "config.json", config)
    tokenizer.save_pretrained(target)
    generation = {name: config[name] for name in ("bos_token_id", "pad_token_id")}
    generation["eos_token_id"] = gguf_tokenizer.end_ids(file)
    _write_json(target / "generation_config.json", generation)
    _write_weights(file, target)


def _check_tensors(file: GgufFile, config: dict[str, Any]) -> None:
    """Compares names and shapes with those of the model in transformers."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    except Exception as error:  # whatever the model's class raises
        raise BuildError(f"{file.path}: its metadata make no model: {error!r}") from error
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        del wanted["lm_head.weight"]
    found = {parameter: file.tensors[name].shape for parameter, name in file.parameters()}
    for name in sorted(wanted.keys() | found.keys()):
        if found.get(name) != wanted.get(name):
            raise BuildError(
                f"{file.path}: {name} has the shape {found.get(name)}, and the model that its "
                f"metadata describe {wanted.get(name)} (None: it is not there)"
            )


def _write_weights(file: GgufFile, target: Path) -> None:
    """Writes files of about a gigabyte each, so that no more is held in memory, and their index."""
    from safetensors.numpy import save_file

    files: dict[str, str] = {}
    for number, shard in enumerate(_shards(_weights(file)), 1):
        shard_name = f"model-{number:05}.safetensors"
        save_file(shard, target / shard_name, metadata={"format": "pt"})
        files |= dict.fromkeys(shard, shard_name)
    _write_json(target / "model.safetensors.index.json", {"metadata": {}, "weight_map": files})


def _weights(file: GgufFile) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    for parameter, name in file.parameters():
        weight, order = file.floats(name), file.row_order(name)
        if order is not None:
            weight = weight[order]
        if parameter.endswith("norm.weight"):
            weight = weight - np.float32(file.family.norm_offset)
        yield parameter, np.ascontiguousarray(weight)


def _shards(
    weights: Iterable[tuple[str, npt.NDArray[np.float32]]],
) -> Iterator[dict[str, npt.NDArray[np.float32]]]:
    shard: dict[str, npt.NDArray[np.float32]] = {}
    for name, weight in weights:
        shard[name] = weight
        if sum(each.nbytes for each in shard.values()) >= SHARD_BYTES:
            yield shard
            shard = {}
    if shard:
        yield shard


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _blocks(data: npt.NDArray[np.uint8], block_bytes: int) -> npt.NDArray[np.uint8]:
    """[out, bytes of a row] -> [out, in // 32, bytes of a block]."""
    return data.reshape(data.shape[0], -1, block_bytes)


def _half(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """[..., 2] -> [...]: a float16, little-endian."""
    halves: npt.NDArray[np.float16] = np.ascontiguousarray(data).view("<f2")[..., 0]
    return halves.astype(np.float32)


def _nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """[out, blocks, 16] -> [out, in]: the low halves of a block's bytes come first."""
    codes: npt.NDArray[np.uint8] = np.concatenate([packed & 15, packed >> 4], axis=-1)
    return codes.reshape(packed.shape[0], -1)


def _q4_0(data: npt.NDArray[np.uint8]) -> QuantizedMatrix:
    blocks = _blocks(data, 2 + BLOCK // 2)
    return QuantizedMatrix(bits=4, codes=_nibbles(blocks[..., 2:]), scales=_half(blocks[..., :2]))


def _q8_0(data: npt.NDArray[np.uint8]) -> QuantizedMatrix:
    blocks = _blocks(data, 2 + BLOCK)
    codes = blocks[..., 2:] ^ np.uint8(128)  # int8 + 128
    return QuantizedMatrix(
        bits=8, codes=codes.reshape(len(data), -1), scales=_half(blocks[..., :2])
    )


# Not Q4_1: with its minimums as zero points of floats, MatMulNBits takes 60 times as long at one
# row, and 3 times at 64 (onnxruntime 1.31).
UNPACKED: dict[str, Callable[[npt.NDArray[np.uint8]], QuantizedMatrix]] = {
    "Q4_0": _q4_0,
    "Q8_0": _q8_0,
}
