"""`lora_name`: the LoRA adapters of a model, as TensorRT-LLM's request objects.

TensorRT-LLM loads an adapter's weights with the first request for it. Its cache of prefixes is
separate for each adapter id, so no salt is needed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from port import BadParameter
from trtllm.library import Library, StartFailed


@dataclass(frozen=True, slots=True)
class LoraAdapters:
    """TensorRT-LLM's LoRARequest by the adapter's name."""

    requests: Mapping[str, Any]

    @classmethod
    def of(cls, library: Library, folders: str) -> LoraAdapters:
        """`folders`: JSON, an adapter's folder by its name. Ids count from 1, in order of names.

        Raises:
            StartFailed: a folder is missing.
        """
        found = sorted(json.loads(folders).items())
        try:
            return cls(
                {
                    name: library.lora_request(lora_name=name, lora_int_id=number, lora_path=folder)
                    for number, (name, folder) in enumerate(found, 1)
                }
            )
        except ValueError as error:
            raise StartFailed(f"cannot load a LoRA adapter: {error}") from error

    def named(self, name: str) -> Any:
        """Raises BadParameter for an unknown name."""
        if name not in self.requests:
            known = ", ".join(self.requests) or "none"
            raise BadParameter(
                "lora_name", f"this model has no adapter {name!r}; its adapters: {known}"
            )
        return self.requests[name]
