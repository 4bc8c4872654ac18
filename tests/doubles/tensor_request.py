"""A Triton request of a Python model: its tensors, by name."""

from __future__ import annotations

import numpy as np


class GivenTensor:
    """As Triton's Python backend hands one over."""

    def __init__(self, elements: list) -> None:
        self._array = np.array([elements])

    def as_numpy(self) -> np.ndarray:
        return self._array


class TensorRequest:
    """`tensors`: each one's elements."""

    def __init__(self, **tensors: list) -> None:
        self._tensors = tensors

    def tensor(self, name: str) -> GivenTensor | None:
        return GivenTensor(self._tensors[name]) if name in self._tensors else None
