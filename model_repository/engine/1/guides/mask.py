"""The mask of a batch: which tokens each row may continue with."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from guides.state import BITS, GuideState
from guides.workers import GuideWorkers

ALL = np.int32(-1)
STEP_WAIT_S = 0.005  # for guides that are not ready when the model is
ALONE_WAIT_S = 0.02  # if no row at all is ready
Mask = npt.NDArray[np.int32]


class GuideMask:
    """For one thread."""

    def __init__(self, vocab_size: int, *, threads: int) -> None:
        """`vocab_size` is the width of the logits; `threads` masks are filled at once."""
        self._buffer = np.empty((0, -(-vocab_size // BITS)), dtype=np.int32)
        self._workers = GuideWorkers(threads)

    def begin(self, states: Sequence[GuideState | None]) -> None:
        """Starts to fill the masks that are due, while the model runs."""
        self._workers.begin(state for state in states if state is not None)

    def late_rows(self, states: Sequence[GuideState | None]) -> set[int]:
        """The rows whose masks are not ready after a short wait; they must skip this step.

        It does not wait for a guide that has used up its patience, unless no row is ready.
        """
        self.begin(states)
        unready = _unready(states)
        if not unready:
            return set()
        self._wait([state for state in unready.values() if state.patience_s > 0])
        unready = _unready(states)
        if len(unready) == len(states):
            self._workers.wait(list(unready.values()), ALONE_WAIT_S, for_all=False)
            unready = _unready(states)
        if unready:
            self._workers.replace_busy_threads()
        return set(unready)

    def _wait(self, states: list[GuideState]) -> None:
        """Charges each guide with the part of the wait during which it was working."""
        began = time.monotonic()
        self._workers.wait(states, STEP_WAIT_S)
        waited_s = time.monotonic() - began
        for state in states:
            worked_s = state.last_s if state.is_ready else self._workers.running_s(state)
            state.waited_s += min(waited_s, worked_s)

    def is_too_slow(self, state: GuideState) -> bool:
        """Whether the guide has taken more CPU time than it may."""
        return state.is_too_slow(0.0 if state.is_ready else self._workers.running_s(state))

    def of(self, states: Sequence[GuideState | None]) -> Mask | None:
        """[rows, ceil(vocab_size / 32)]; token t is allowed if bit t % 32 of word t // 32 is set.

        All states must be ready. Rows without a guide, or with a terminated one, are all ones; if
        all rows are, there is no mask. A row of zeros is a dead end: no token of the vocabulary
        can follow. The array is valid until the next call.
        """
        if all(state is None or state.is_terminated for state in states):
            return None
        if len(states) > len(self._buffer):
            self._buffer = np.empty((len(states), self._buffer.shape[1]), dtype=np.int32)
        mask = self._buffer[: len(states)]
        for row, state in zip(mask, states, strict=True):
            row[:] = ALL if state is None or state.is_terminated else state.mask[0]
        return mask

    def close(self) -> None:
        self._workers.close()


def _unready(states: Sequence[GuideState | None]) -> dict[int, GuideState]:
    """By row."""
    return {
        row: state for row, state in enumerate(states) if state is not None and state.is_unready
    }
