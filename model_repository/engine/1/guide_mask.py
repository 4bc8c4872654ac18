"""Which tokens each row of a batch may be continued with."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from guide_state import BITS, GuideState
from guide_workers import GuideWorkers

ALL = np.int32(-1)
STEP_WAIT_S = 0.005  # for guides that are not ready when the model is
ALONE_WAIT_S = 0.02  # where no row at all is ready
Mask = npt.NDArray[np.int32]


class GuideMask:
    """For one thread."""

    def __init__(self, vocab_size: int, *, threads: int) -> None:
        """`vocab_size` is the width of the logits. `threads`: fill masks at a time."""
        self._buffer = np.empty((0, -(-vocab_size // BITS)), dtype=np.int32)
        self._workers = GuideWorkers(threads)

    def begin(self, states: Sequence[GuideState | None]) -> None:
        """Starts to fill masks that are due, while the model runs."""
        self._workers.begin(state for state in states if state is not None)

    def late(self, states: Sequence[GuideState | None]) -> set[int]:
        """Rows whose masks are not ready, after a short wait: they must sit this step out.

        A guide that has used up its patience is not waited for, unless no row is ready.
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
            self._workers.replace_kept_threads()
        return set(unready)

    def _wait(self, states: list[GuideState]) -> None:
        """The wait is charged to each guide as far as it was at work meanwhile."""
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
        """[rows, ceil(vocab_size / 32)], token t allowed where bit t % 32 of word t // 32 is set.

        Rows without a guide are all ones, as are those whose guide is terminated; None where
        there are only such. A row of zeros is a dead end: no token of the vocabulary can follow.
        All states are ready. The array is valid until the next call.
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
