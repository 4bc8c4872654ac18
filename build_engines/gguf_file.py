"""A GGUF file, llama.cpp's format: its metadata, its tensors, and their names in transformers.

Read with the package gguf. A file is refused when it is opened, or when it is first read.
"""

from __future__ import annotations

import math
import mmap
import re
import reprlib
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
    from gguf import GGMLQuantizationType

VERSIONS = (2, 3)
HEADER = struct.Struct("<4sIQQ")  # magic, version, number of tensors, number of values
ALIGNMENT = 32  # of tensors in the file, unless general.alignment says otherwise
# Types of values: those of numbers by struct's letter, and the other two
NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
STRUCTS = {letter: struct.Struct(f"<{letter}") for letter in NUMBERS.values()}
TEXT, ARRAY = 8, 9
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


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value of the metadata must be."""

    name: str
    matches: Callable[[Any], bool]


def _each(matches: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(matches, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_index(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


COUNT = Kind("one whole number", lambda value: _is_index(value) and value > 0)
POWER = Kind("a power of two", lambda value: _is_index(value) and value.bit_count() == 1)
INDEX = Kind("one whole number", _is_index)
INDICES = Kind("a list of whole numbers", _each(_is_index))
FACTOR = Kind("one number", lambda value: _is_number(value) and 1e-30 < value < 1e30)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
WORD = Kind("a text", _is_text)
WORDS = Kind("a list of texts", _each(_is_text))
FACTORS = Kind("a list of numbers", _each(_is_number))
# Every value that a build reads, by key: what it must be.
KINDS = {
    "general.architecture": WORD,
    "general.name": WORD,
    "general.alignment": POWER,
    "split.count": INDEX,
    "tokenizer.ggml.model": WORD,
    "tokenizer.ggml.pre": WORD,
    "tokenizer.ggml.tokens": WORDS,
    "tokenizer.ggml.token_type": INDICES,
    "tokenizer.ggml.scores": FACTORS,
    "tokenizer.ggml.merges": WORDS,
    "tokenizer.ggml.bos_token_id": INDEX,
    "tokenizer.ggml.eos_token_id": INDEX,
    "tokenizer.ggml.eot_token_id": INDEX,
    "tokenizer.ggml.eom_token_id": INDEX,
    "tokenizer.ggml.unknown_token_id": INDEX,
    "tokenizer.ggml.padding_token_id": INDEX,
    "tokenizer.ggml.add_bos_token": FLAG,
    "tokenizer.ggml.add_space_prefix": FLAG,
    "tokenizer.chat_template": WORD,
    "tokenizer.chat_templates": WORDS,
}
# The same under the name of the architecture.
OWN_KINDS = {
    "block_count": COUNT,
    "context_length": COUNT,
    "embedding_length": COUNT,
    "feed_forward_length": COUNT,
    "attention.head_count": COUNT,
    "attention.head_count_kv": COUNT,
    "attention.key_length": COUNT,
    "attention.value_length": COUNT,
    "attention.layer_norm_rms_epsilon": FACTOR,
    "attention.sliding_window": INDEX,
    "attn_logit_softcapping": FACTOR,
    "final_logit_softcapping": FACTOR,
    "rope.dimension_count": COUNT,
    "rope.freq_base": FACTOR,
    "rope.scaling.type": WORD,
    "rope.scaling.factor": FACTOR,
    "rope.scaling.original_context_length": COUNT,
}
NAMED_TEMPLATE = "tokenizer.chat_template."


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    shape: tuple[int, ...]  # in the order of transformers: [out, in]
    kind: GGMLQuantizationType
    data: npt.NDArray[np.uint8]  # [out, bytes of a row], mapped from the file


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """
        Args:
            path: a GGUF file, or a folder with one.

        Raises:
            BuildError: it is not a whole GGUF file that can be read here.
            MissingPackage: the package gguf is not installed.
        """
        file = gguf_in(path) or path
        if SPLIT_NAME.search(file.name):
            raise _is_split(file)
        try:
            import gguf  # noqa: F401  # has the sizes of blocks, and dequantizes them
        except ImportError as error:
            raise MissingPackage(
                f"{file} cannot be read without the package gguf: run {INSTALL_BUILD_TOOLS}"
            ) from error
        content = _mapped(file)
        _check_version(file, content)
        try:
            reader = _Content(content)
            metadata = reader.metadata()
            _check_kinds(file, metadata)
            tensors = reader.tensors(metadata.get("general.alignment", ALIGNMENT))
        except (ValueError, struct.error) as error:
            raise BuildError(f"{file} is cut off or damaged: {error}. Fetch it again") from error
        if metadata.get("split.count", 0) > 1:
            raise _is_split(file)
        return cls(path=file, metadata=metadata, tensors=tensors)

    def get(self, key: str, default: Any = None) -> Any:
        """A value of the metadata. Floats are those that their 32 bits were made of: 1e-05."""
        value = self.metadata.get(key, default)
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def own(self, key: str, default: Any = None) -> Any:
        """A value under the name of the architecture."""
        return self.get(f"{self.architecture}.{key}", default)

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number under the name of the architecture.

        Raises:
            BuildError: there is none.
        """
        value = self.own(key, default)
        if value is None:
            raise _wrong_value(self.path, f"{self.architecture}.{key}", value, OWN_KINDS[key])
        return int(value)

    @property
    def size(self) -> int:
        """How many weights it has."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())

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
            floats: npt.NDArray[np.float32] = dequantize(tensor.data, tensor.kind)
        except NotImplementedError as error:
            raise BuildError(
                f"{self.path}: {name} has the type {tensor.kind.name}, which cannot be "
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
        rows = self.tensors[name].shape[0]
        return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def _mapped(file: Path) -> mmap.mmap | bytes:
    with file.open("rb") as opened:
        if file.stat().st_size < HEADER.size:
            return opened.read()
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def _check_version(file: Path, content: mmap.mmap | bytes) -> None:
    if (magic := content[:4]) != GGUF_MAGIC:
        raise BuildError(f"{file} is not a GGUF file: it begins with {magic!r}")
    if len(content) < HEADER.size:
        raise BuildError(f"{file} is cut off: it has {len(content)} bytes. Fetch it again")
    version = content[4:8]
    if int.from_bytes(version, "little") in VERSIONS:
        return
    if int.from_bytes(version, "big") in VERSIONS:
        raise BuildError(
            f"{file} is big-endian: convert it with `gguf-convert-endian FILE little`, a command "
            "of the Python package gguf"
        )
    raise BuildError(
        f"{file} is in version {int.from_bytes(version, 'little')} of GGUF; "
        f"{' and '.join(map(str, VERSIONS))} are read"
    )


def _check_kinds(file: Path, metadata: dict[str, Any]) -> None:
    own = f"{metadata.get('general.architecture')}."
    for key, value in metadata.items():
        kind = KINDS.get(key) or (WORD if key.startswith(NAMED_TEMPLATE) else None)
        if kind is None and key.startswith(own):
            kind = OWN_KINDS.get(key.removeprefix(own))
        if kind is not None and not kind.matches(value):
            raise _wrong_value(file, key, value, kind)


def _wrong_value(file: Path, key: str, value: Any, kind: Kind) -> BuildError:
    return BuildError(f"{file}: {key} is {reprlib.repr(value)}; {kind.name} is needed")


def _is_split(file: Path) -> BuildError:
    return BuildError(
        f"{file} is one part of a split file: join the parts with llama.cpp's "
        "llama-gguf-split --merge, and name the whole file"
    )


class _Content:
    """Reads a file from its start. gguf's own reader takes half a minute for a vocabulary."""

    def __init__(self, content: mmap.mmap | bytes) -> None:
        self._content = content
        self._place = 0
        self._tensors = 0

    def metadata(self) -> dict[str, Any]:
        """
        Raises:
            ValueError, struct.error: it ends too early, or makes no sense.
        """
        _, _, self._tensors, values = self._numbers(HEADER)
        return {self._text(): self._value(self._number("I")) for _ in range(values)}

    def tensors(self, alignment: int) -> dict[str, GgufTensor]:
        """By name; they follow the metadata. Raises as `metadata`."""
        table = [self._tensor() for _ in range(self._tensors)]
        start = -(-self._place // alignment) * alignment
        return {
            name: self._mapped_tensor(name, shape, number, start + offset)
            for name, shape, number, offset in table
        }

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type, and place of a tensor after the start of them all."""
        name, dimensions = self._text(), self._number("I")
        shape = self._numbers(struct.Struct(f"<{dimensions}Q"))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _mapped_tensor(
        self, name: str, shape: tuple[int, ...], number: int, place: int
    ) -> GgufTensor:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            kind = GGMLQuantizationType(number)
        except ValueError as error:
            raise ValueError(f"{name} has the type {number}, which is unknown") from error
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if not shape or 0 in shape or shape[-1] % block:
            raise ValueError(f"{name} has the shape {shape}, and {kind.name} blocks of {block}")
        stored = (*shape[:-1], shape[-1] // block * block_bytes)
        if place + math.prod(stored) > len(self._content):
            raise ValueError(
                f"{name} ends at byte {place + math.prod(stored)} of {len(self._content)}"
            )
        data = np.frombuffer(self._content, np.uint8, math.prod(stored), place)
        return GgufTensor(shape=shape, kind=kind, data=data.reshape(stored))

    def _value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._text()
        if kind == ARRAY:
            item, count = self._number("I"), self._number("Q")
            if item == ARRAY:
                raise ValueError(f"byte {self._place} has a list of lists, which GGUF has nowhere")
            return [self._value(item) for _ in range(count)]
        if kind not in NUMBERS:
            raise ValueError(f"byte {self._place} has a value of the type {kind}, which is unknown")
        return self._number(NUMBERS[kind])

    def _text(self) -> str:
        length = self._number("Q")
        start, self._place = self._place, self._place + length
        if self._place > len(self._content):
            raise ValueError(f"it has {len(self._content)} bytes and needs {self._place}")
        return self._content[start : self._place].decode()

    def _number(self, kind: str) -> Any:
        return self._numbers(STRUCTS[kind])[0]

    def _numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        found = layout.unpack_from(self._content, self._place)
        self._place += layout.size
        return found
