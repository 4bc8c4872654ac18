"""A GGUF file, llama.cpp's format: its metadata, its tensors, and their names in transformers.

Read with the package gguf. What is refused, is refused when the file is opened or first read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from build_engines.errors import INSTALL_BUILD_TOOLS, BuildError, MissingPackage
from build_engines.weights import GGUF_MAGIC, gguf_in

if TYPE_CHECKING:
    from gguf import ReaderTensor

VERSIONS = (2, 3)
SPLIT_NAME = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
HEADS = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The models of one `general.architecture`."""

    model: str  # the class in transformers
    layer: Mapping[str, str] = field(default_factory=lambda: LAYER)  # GGUF's name -> transformers'
    permutes_heads: bool = (
        False  # rows of q and k: llama.cpp rotates neighbours, transformers halves
    )
    norm_offset: float = 0.0  # what the file's norms have added to transformers'


FAMILIES = {
    "llama": Family(model="LlamaForCausalLM", permutes_heads=True),
    "qwen2": Family(model="Qwen2ForCausalLM"),
    "qwen3": Family(
        model="Qwen3ForCausalLM",
        layer={
            **LAYER,
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
        },
    ),
    "phi3": Family(
        model="Phi3ForCausalLM",
        layer={
            **LAYER,
            "attn_qkv": "self_attn.qkv_proj",
            "ffn_up": "mlp.gate_up_proj",
        },
    ),
    "gemma": Family(model="GemmaForCausalLM", norm_offset=1.0),
    "gemma2": Family(
        model="Gemma2ForCausalLM",
        layer={
            **LAYER,
            "post_attention_norm": "post_attention_layernorm",
            "ffn_norm": "pre_feedforward_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
        norm_offset=1.0,
    ),
}


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An opened file. Its metadata are read when they are asked for, its tensors are mapped."""

    path: Path
    _value: Callable[[str], Any]
    tensors: dict[str, ReaderTensor]

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """
        Args:
            path: a GGUF file, or a folder with one.

        Raises:
            BuildError: it is not a whole GGUF file that this machine can read.
            MissingPackage: the package gguf is not installed.
        """
        file = gguf_in(path) or path
        _check_header(file)
        try:
            from gguf import GGUFReader
        except ImportError as error:
            raise MissingPackage(
                f"{file} cannot be read without the package gguf: run {INSTALL_BUILD_TOOLS}"
            ) from error
        try:
            reader = GGUFReader(file)
        except (ValueError, IndexError, OverflowError) as error:
            if "GGMLQuantizationType" in str(error):
                raise BuildError(f"{file} has a tensor of an unknown type: {error}") from error
            raise BuildError(f"{file} is cut off or damaged: {error}. Fetch it again") from error

        def value(key: str) -> Any:
            found = reader.get_field(key)
            return None if found is None else found.contents()

        opened = cls(file, value, {tensor.name: tensor for tensor in reader.tensors})
        if (opened.get("split.count") or 0) > 1:
            raise _is_split(file)
        return opened

    def get(self, key: str, default: Any = None) -> Any:
        """A value of the metadata. Floats are those that their 32 bits were made of: 1e-05."""
        value = self._value(key)
        if value is None:
            return default
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def own(self, key: str, default: Any = None) -> Any:
        """A value under the name of the architecture."""
        return self.get(f"{self.architecture}.{key}", default)

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number under the name of the architecture.

        Raises:
            BuildError: there is none, or one for each layer.
        """
        value = self.own(key, default)
        if not isinstance(value, int):
            raise BuildError(
                f"{self.path}: {self.architecture}.{key} is {value!r}; one whole number is needed"
            )
        return value

    @property
    def architecture(self) -> str:
        return str(self.get("general.architecture"))

    @property
    def family(self) -> Family:
        if (found := FAMILIES.get(self.architecture)) is not None:
            return found
        raise BuildError(
            f"{self.path} has the architecture {self.architecture!r}; GGUF is read of "
            f"{', '.join(FAMILIES)}"
        )

    @property
    def head_dim(self) -> int:
        width, heads = self.number("embedding_length"), self.number("attention.head_count")
        return self.number("attention.key_length", width // heads)

    def floats(self, name: str) -> npt.NDArray[np.float32]:
        """
        Raises:
            BuildError: the package gguf cannot dequantize the tensor.
        """
        from gguf.quants import dequantize

        tensor = self.tensors[name]
        try:
            floats: npt.NDArray[np.float32] = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise BuildError(
                f"{self.path}: {name} has the type {tensor.tensor_type.name}, which cannot be "
                "dequantized. Take the file in another quantization, such as Q8_0 or Q4_K_M"
            ) from error
        return floats

    def parameters(self) -> Iterator[tuple[str, str]]:
        """The tensors of the model: the name in transformers, and the one in the file."""
        family = self.family
        for name in self.tensors:
            if name in ROPE_TENSORS:
                continue
            found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
            layer, module, kind = found.groups() if found else (None, name, "")
            known = (WHOLE if layer is None else family.layer).get(module)
            if known is None:
                raise BuildError(
                    f"{self.path} has the tensor {name!r}, which no {family.model} has"
                )
            yield f"{'' if layer is None else f'model.layers.{layer}.'}{known}.{kind}", name

    def row_order(self, name: str) -> npt.NDArray[np.intp] | None:
        """The file's rows in the order of transformers; None: they are in it."""
        module = name.split(".")[-2]
        if not self.family.permutes_heads or module not in HEADS:
            return None
        heads = self.number(HEADS[module], self.number("attention.head_count"))
        rows = int(self.tensors[name].shape[-1])
        return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def _check_header(file: Path) -> None:
    if SPLIT_NAME.search(file.name):
        raise _is_split(file)
    with file.open("rb") as opened:
        start = opened.read(len(GGUF_MAGIC) + 4)
    if start[: len(GGUF_MAGIC)] != GGUF_MAGIC:
        raise BuildError(f"{file} is not a GGUF file: it starts with {start[:4]!r}")
    if len(start) < len(GGUF_MAGIC) + 4:
        raise BuildError(f"{file} is cut off: it has {len(start)} bytes. Fetch it again")
    (version,) = struct.unpack_from("<I", start, len(GGUF_MAGIC))
    if version in VERSIONS:
        return
    if struct.unpack_from(">I", start, len(GGUF_MAGIC))[0] in VERSIONS:
        raise BuildError(
            f"{file} is big-endian: convert it with gguf-convert-endian FILE little, "
            "a command of the Python package gguf"
        )
    raise BuildError(f"{file} is GGUF version {version}; versions 2 and 3 are read")


def _is_split(file: Path) -> BuildError:
    return BuildError(
        f"{file} is one part of a split file: join the parts with llama.cpp's "
        "llama-gguf-split --merge, and name the whole file"
    )
