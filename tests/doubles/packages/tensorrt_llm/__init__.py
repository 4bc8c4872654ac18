"""A stand-in of TensorRT-LLM with upstream's signatures and ways, and no model: see executor.

Its arguments are made of the records in build_engines/upstream/; a test compares the signatures.
"""

from __future__ import annotations

from .llmapi.llm import LLM
from .sampling_params import SamplingParams

__version__ = "1.2.1"
__all__ = ["LLM", "SamplingParams"]
