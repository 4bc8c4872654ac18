"""One model folder of onnxruntime-genai's builder as a step function over a KV cache.

`past` and `present` of each layer are bound to the same buffer, so a step writes in place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

Logits = npt.NDArray[np.float32]

NUMPY_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class UnservableModel(Exception):
    """The folder holds something this runtime cannot run; the message says what."""


@dataclass(frozen=True, kw_only=True)
class DecoderSpec:
    """The shape of the decoder, from genai_config.json. Lengths in tokens."""

    file: str
    layers: int
    kv_heads: int
    head_size: int
    context_length: int
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
        """Raises UnservableModel when genai_config.json is missing or of another shape."""
        try:
            model = json.loads((folder / "genai_config.json").read_text())["model"]
            decoder = model["decoder"]
            inputs, outputs = decoder["inputs"], decoder["outputs"]
            return cls(
                file=decoder["filename"],
                layers=decoder["num_hidden_layers"],
                kv_heads=decoder["num_key_value_heads"],
                head_size=decoder["head_size"],
                context_length=model["context_length"],
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


class OnnxDecoder:
    """The session and one row of KV cache, [1, kv_heads, context, head_size] a layer and side."""

    def __init__(self, folder: Path, *, threads: int, context_length: int) -> None:
        spec = DecoderSpec.read(folder)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = ort.InferenceSession(
            str(folder / spec.file), options, providers=["CPUExecutionProvider"]
        )
        self._spec = spec
        inputs = {i.name: i for i in self._session.get_inputs()}
        self._wants_positions = spec.position_ids in inputs
        dtype = NUMPY_TYPES[inputs[spec.past_key % 0].type]
        shape = (1, spec.kv_heads, context_length, spec.head_size)
        self._kv = [np.zeros(shape, dtype) for _ in range(2 * spec.layers)]
        self._binding = self._bind_kv()

    def _bind_kv(self) -> Any:
        spec, binding = self._spec, self._session.io_binding()
        for layer in range(spec.layers):
            sides = ((spec.past_key, spec.present_key), (spec.past_value, spec.present_value))
            for side, (past, present) in enumerate(sides):
                buffer = self._kv[2 * layer + side]
                at = ("cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
                binding.bind_input(past % layer, *at)
                binding.bind_output(present % layer, *at)
        return binding

    def forward(self, ids: list[int], past_tokens: int) -> Logits:
        """Runs `ids` behind the first `past_tokens` of the row; logits [vocab] of the last one."""
        spec, binding, total = self._spec, self._binding, past_tokens + len(ids)
        binding.bind_cpu_input(spec.input_ids, np.array([ids], dtype=np.int64))
        binding.bind_cpu_input(spec.attention_mask, np.ones((1, total), dtype=np.int64))
        if self._wants_positions:
            positions = np.arange(past_tokens, total, dtype=np.int64)[None, :]
            binding.bind_cpu_input(spec.position_ids, positions)
        binding.bind_output(spec.logits)
        self._session.run_with_iobinding(binding)
        logits = binding.get_outputs()[-1].numpy()
        return np.asarray(logits[0, -1], dtype=np.float32)
