from __future__ import annotations

from ..sampling_params import GuidedDecodingParams

__all__ = ["GuidedDecodingParams"]
