"""TensorRT-LLM's C++ backend sends the log-probabilities of a stream from its beginning, each time.

Those of a response's own tokens are the last ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def newest(log_probs: npt.NDArray[np.float32], tokens: int) -> npt.NDArray[np.float32]:
    """[1, 1, tokens so far] -> [1, 1, tokens]. Raises ValueError where there are less."""
    so_far = log_probs.ravel()
    if len(so_far) < tokens:
        raise ValueError(f"{len(so_far)} log-probabilities came to {tokens} tokens")
    return so_far[len(so_far) - tokens :].reshape(1, 1, tokens)
