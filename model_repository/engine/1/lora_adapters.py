"""The LoRA adapters of an engine that batches by itself: its own LoRARequests, by name.

TensorRT-LLM and vLLM load an adapter's weights with the first request for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from port import BadParameter


def lora_requests(request_class: Any, folders: str) -> dict[str, Any]:
    """`folders`: JSON, an adapter's folder by its name. Ids count from 1, in order of names."""
    return {
        name: request_class(lora_name=name, lora_int_id=number, lora_path=folder)
        for number, (name, folder) in enumerate(sorted(json.loads(folders).items()), 1)
    }


def named(adapters: Mapping[str, Any], name: str) -> Any:
    """Raises BadParameter for an unknown name."""
    if name not in adapters:
        known = ", ".join(adapters) or "none"
        raise BadParameter(
            "lora_name", f"this model has no adapter {name!r}; its adapters: {known}"
        )
    return adapters[name]
