from __future__ import annotations

from typing import Any, ClassVar

from ..llmapi import llm
from ..llmapi.llm_args import TrtLlmArgs


class LLM(llm.LLM):
    args_class: ClassVar[Any] = TrtLlmArgs

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cache = kwargs.get("kv_cache_config", {})
        assert cache.get("dtype", "auto") == "auto", "not supported by the TensorRT backend"


__all__ = ["LLM"]
