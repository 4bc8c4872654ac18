"""A stand-in of TensorRT-LLM with upstream's signatures and ways, and no model: see executor.

build_engines/upstream/tensorrt_llm.json holds the signatures; a test compares the two.
"""

from __future__ import annotations

from .llmapi.llm import LLM
from .sampling_params import SamplingParams

__version__ = "1.2.1"
__all__ = ["LLM", "SamplingParams"]
