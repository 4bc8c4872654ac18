"""The LoRA adapters of a model, as TensorRT-LLM is told of the one that a request names.

It loads an adapter's weights with the first request for it. Keys and values of prefixes it keeps
apart by the adapters' ids (its block keys have them), so that nothing has to be salted here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from port import BadParameter
from trtllm_library import Library, StartFailed


@dataclass(frozen=True, slots=True)
class Adapters:
    """tensorrt_llm's LoRARequest by an adapter's name."""

    requests: Mapping[str, Any]

    @classmethod
    def of(cls, library: Library, folders: str) -> Adapters:
        """`folders`: JSON, an adapter's folder by its name. Ids are from 1, by the names' order.

        Raises:
            StartFailed: a folder is not there.
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
            raise StartFailed(f"an adapter cannot be served: {error}") from error

    def named(self, name: str) -> Any:
        """Raises BadParameter."""
        if name not in self.requests:
            known = ", ".join(self.requests) or "none"
            raise BadParameter(
                "lora_name", f"this model has no adapter {name!r}; its adapters: {known}"
            )
        return self.requests[name]
