"""Our config.pbtxt of the C++ backend against the one that an image brings along."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from build_engines import triton_models
from build_engines.upstream.signatures import Difference

ALL_MODELS = Path("/app/all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt")
PLACEHOLDER = re.compile(r'(?<!")\$\{(\w+)\}')
FILLED = {
    "decoupled_mode": "true",
    "logits_datatype": "TYPE_FP32",
    "encoder_input_features_data_type": "TYPE_FP16",
    "prompt_embedding_table_data_type": "TYPE_FP16",
}


def parsed(text: str) -> Any:
    """An upstream template, its placeholders outside of strings filled in.

    Raises:
        google.protobuf.text_format.ParseError: it is not a model config.
    """
    return triton_models.parse(PLACEHOLDER.sub(lambda found: FILLED.get(found[1], "1"), text))


def differences(theirs: Any) -> Iterator[Difference]:
    """Each tensor and each parameter that is not the same in ours.

    Parameters come and go without harm: the backend has defaults, and passes over what it does not
    know. So do tensors that are new.
    """
    ours = triton_models.config_of("engine", "tensorrt_llm")
    for kind in ("input", "output"):
        yield from _compared(kind, _rows(getattr(theirs, kind)), _rows(getattr(ours, kind)))
    for key in sorted(set(theirs.parameters) - set(ours.parameters)):
        yield _difference(f"parameter {key} is new")
    for key in sorted(set(ours.parameters) - set(theirs.parameters)):
        yield _difference(f"parameter {key} is gone")


def _difference(text: str, *, breaks: bool = False) -> Difference:
    return Difference(target="tensorrtllm", text=text, breaks=breaks)


def _compared(kind: str, theirs: dict[str, str], ours: dict[str, str]) -> Iterator[Difference]:
    for name in theirs | ours:
        if name not in ours:
            yield _difference(f"{kind} {name} is new: {theirs[name]}")
        elif name not in theirs:
            yield _difference(f"{kind} {name} is gone", breaks=True)
        elif theirs[name] != ours[name]:
            text = f"{kind} {name} is {theirs[name]}, ours is {ours[name]}"
            yield _difference(text, breaks=True)


def _rows(tensors: Any) -> dict[str, str]:
    """Name -> all else that the config says of it."""
    rows = {}
    for tensor in tensors:
        rest = type(tensor)()
        rest.CopyFrom(tensor)
        rest.ClearField("name")
        rows[tensor.name] = " ".join(str(rest).split())
    return rows
