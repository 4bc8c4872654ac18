"""Runs a model folder of onnxruntime-genai's builder over rows of KV cache, with ONNX Runtime.

`past` and `present` of each layer are bound to the same buffer, so a run writes in place.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from onnx_cpu.kv_rows import Ids, KvOverflow, KvRows, KvShape, Logits

NUMPY_TYPES: dict[str, type[Any]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}
PREFILL_LOGITS_BYTES = 128_000_000
# For a cache of 16 bits, ONNX Runtime's attention allocates the scores of a run's tokens against
# the whole capacity of a row; for one of 32 bits it needs none. Small chunks would be slow.
PREFILL_SCORES_BYTES = 64_000_000
LEAST_CHUNK = 64  # tokens
# An input [1] of graphs that our build has rewritten: the first token whose logits are computed.
# Other graphs return the logits of every token that they are fed.
LOGITS_FROM = "logits_from"
CPU_INFO = Path("/proc/cpuinfo")
CPU_FLAGS = "cpu_flags"  # a file of our build, for graphs that not every CPU runs correctly


class UnservableModel(Exception):
    """This runtime cannot run the model in the folder; the message says why."""


@dataclass(frozen=True, kw_only=True)
class DecoderSpec:
    """The decoder's sizes and the names of its inputs and outputs, from genai_config.json."""

    file: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    past_key: str
    past_value: str
    present_key: str
    present_value: str
    input_ids: str
    attention_mask: str
    position_ids: str
    logits: str

    @classmethod
    def read(cls, folder: Path) -> DecoderSpec:
        """Raises UnservableModel if genai_config.json is missing or lacks an entry."""
        try:
            model = json.loads((folder / "genai_config.json").read_text())["model"]
            decoder = model["decoder"]
            inputs, outputs = decoder["inputs"], decoder["outputs"]
            return cls(
                file=decoder["filename"],
                layers=decoder["num_hidden_layers"],
                heads=decoder["num_attention_heads"],
                kv_heads=decoder["num_key_value_heads"],
                head_size=decoder["head_size"],
                vocab_size=model["vocab_size"],
                past_key=inputs["past_key_names"],
                past_value=inputs["past_value_names"],
                present_key=outputs["present_key_names"],
                present_value=outputs["present_value_names"],
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                position_ids=inputs.get("position_ids", "position_ids"),
                logits=outputs["logits"],
            )
        except (OSError, ValueError, KeyError) as error:
            raise UnservableModel(f"{folder}/genai_config.json: {error!r}") from error

    def kv_names(self) -> list[tuple[str, str]]:
        """The names (past, present) of each side, in the order of KvRows."""
        sides = ((self.past_key, self.present_key), (self.past_value, self.present_value))
        return [
            (past % layer, present % layer)
            for layer in range(self.layers)
            for past, present in sides
        ]


class OnnxDecoder:
    """A decoder_port.Decoder. `rows`: the sequences that one run can decode."""

    def __init__(self, folder: Path, *, threads: int, rows: int, context_length: int) -> None:
        check_cpu(folder, CPU_INFO.read_text())
        self._spec = spec = DecoderSpec.read(folder)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors; it warns of every input with a default
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = ort.InferenceSession(
            str(folder / spec.file), options, providers=["CPUExecutionProvider"]
        )
        inputs = [*self._session.get_inputs(), *self._session.get_overridable_initializers()]
        self._inputs = _numpy_types(inputs)
        outputs = _numpy_types(self._session.get_outputs())
        self.kv = KvRows(
            KvShape(
                sides=2 * spec.layers,
                kv_heads=spec.kv_heads,
                head_size=spec.head_size,
                dtype=self._inputs[spec.past_key % 0],
            ),
            rows=rows,
            context_length=context_length,
        )
        logits_type = outputs[spec.logits]
        most = PREFILL_LOGITS_BYTES // (spec.vocab_size * np.dtype(logits_type).itemsize)
        if self.kv.shape.dtype == np.float16:
            scored = PREFILL_SCORES_BYTES // (4 * spec.heads * self.kv.capacity)
            most = min(most, max(LEAST_CHUNK, scored))
        self.vocab_size = spec.vocab_size
        self.most_tokens = max(most, rows)
        self._logits = _Buffer(self.most_tokens * spec.vocab_size, logits_type)
        most_positions = max(rows * self.kv.capacity, self.most_tokens)
        self._feeds = {
            name: _Buffer(most_positions, self._inputs[name])
            for name in (spec.input_ids, spec.attention_mask, spec.position_ids, LOGITS_FROM)
            if name in self._inputs
        }
        self._positions = np.arange(self.kv.capacity)
        self._bindings: dict[tuple[int, int], Any] = {}

    def decode(self, ids: Ids, past_tokens: Ids) -> Logits:
        logits: Logits = self._run(0, len(ids), ids[:, None], past_tokens)[:, 0]
        return logits

    def prefill(self, row: int, ids: list[int], past_tokens: int, logits_from: int) -> Logits:
        past = np.array([past_tokens])
        logits: Logits = self._run(row, row + 1, np.array([ids]), past, logits_from)[0]
        return logits

    def _run(
        self, start: int, stop: int, ids: Ids, past_tokens: Ids, logits_from: int = 0
    ) -> Logits:
        """Returns logits [rows, tokens from `logits_from` on, vocab]."""
        spec, binding = self._spec, self._binding(start, stop)
        rows, tokens = ids.shape
        total = past_tokens + tokens
        mask = self._positions[: int(total.max())] < total[:, None]
        self._feed(binding, spec.input_ids, ids)
        self._feed(binding, spec.attention_mask, mask)
        if spec.position_ids in self._feeds:
            positions = past_tokens[:, None] + self._positions[:tokens]
            self._feed(binding, spec.position_ids, positions)
        is_cut = LOGITS_FROM in self._feeds
        if is_cut:
            self._feed(binding, LOGITS_FROM, np.array([logits_from]))
        computed = tokens - logits_from if is_cut else tokens
        logits = self._logits.shaped((rows, computed, spec.vocab_size))
        self._logits.bind(binding.bind_output, spec.logits, logits.shape)
        self._session.run_with_iobinding(binding)
        new = zip(range(start, stop), past_tokens.tolist(), total.tolist(), strict=True)
        if overflown := [row for row, *tokens in new if self.kv.has_overflown(row, *tokens)]:
            raise KvOverflow(overflown)
        if not is_cut:
            logits = logits[:, logits_from:]
        return logits if logits.dtype == np.float32 else logits.astype(np.float32)

    def _feed(self, binding: Any, name: str, value: npt.NDArray[Any]) -> None:
        buffer = self._feeds[name]
        buffer.shaped(value.shape)[...] = value
        buffer.bind(binding.bind_input, name, value.shape)

    def _binding(self, start: int, stop: int) -> Any:
        """Keeps the rows' buffers bound: a model of 32 layers would bind 128 of them a step."""
        binding = self._bindings.get((start, stop))
        if binding is None:
            binding = self._bindings[start, stop] = self._session.io_binding()
            for side, (past, present) in enumerate(self._spec.kv_names()):
                buffer = self.kv.side(side, start, stop)
                _bind(binding.bind_input, past, buffer)
                _bind(binding.bind_output, present, buffer)
        return binding


def check_cpu(folder: Path, cpu_info: str) -> None:
    """cpu_info: the text of /proc/cpuinfo.

    Raises UnservableModel: the graph needs one of several CPU flags, and the CPU has none of them.
    Its sums of 8-bit products would saturate without an error.
    """
    file = folder / CPU_FLAGS
    wanted = file.read_text().split() if file.is_file() else []
    if wanted and set(wanted).isdisjoint(cpu_info.split()):
        raise UnservableModel(
            f"{folder} was built on another machine, for a CPU with {' or '.join(wanted)}, which "
            "this CPU lacks: build the model again on this machine"
        )


class _Buffer:
    """Memory at a fixed address, bound again for each run, in that run's shape."""

    def __init__(self, elements: int, dtype: type[Any]) -> None:
        self._flat: npt.NDArray[Any] = np.empty(elements, dtype)
        self._address = self._flat.ctypes.data  # slow to read
        self._dtype = dtype

    def shaped(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        return self._flat[: math.prod(shape)].reshape(shape)

    def bind(self, bind: Any, name: str, shape: tuple[int, ...]) -> None:
        bind(name, "cpu", 0, self._dtype, shape, self._address)


def _numpy_types(nodes: list[Any]) -> dict[str, type[Any]]:
    for node in nodes:
        if node.type not in NUMPY_TYPES:
            raise UnservableModel(
                f"{node.name} has the type {node.type}, which this runtime does not support"
            )
    return {node.name: NUMPY_TYPES[node.type] for node in nodes}


def _bind(bind: Any, name: str, value: npt.NDArray[Any]) -> None:
    bind(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
