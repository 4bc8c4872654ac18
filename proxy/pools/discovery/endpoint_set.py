"""What a source emits: sets of bounded size, never the same one twice in a row."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.source_url import MOST_ENDPOINTS

logger = structlog.get_logger(__name__)


class EndpointSet:
    """The endpoints that were emitted last. source: for the log."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._last: frozenset[EndpointAddress] | None = None
        self._is_cut = False

    @property
    def is_known(self) -> bool:
        """Whether any set was emitted."""
        return self._last is not None

    def changed(self, found: Iterable[EndpointAddress]) -> frozenset[EndpointAddress] | None:
        """The set to emit; None if it is the last one.

        Of an address with several metrics ports, the highest port counts. Of more endpoints than
        MOST_ENDPOINTS, the first in the order of their addresses are kept.
        """
        ordered = sorted(found, key=lambda each: (each.address, each.metrics_port or 0))
        different = list({each.address: each for each in ordered}.values())
        self._note_size(len(different))
        fresh = frozenset(different[:MOST_ENDPOINTS])
        if fresh == self._last:
            return None
        self._last = fresh
        return fresh

    def _note_size(self, size: int) -> None:
        is_cut = size > MOST_ENDPOINTS
        if is_cut and not self._is_cut:
            logger.warning(
                "a pool has too many endpoints",
                source=self._source,
                found=size,
                kept=MOST_ENDPOINTS,
                advice="divide the pool: those beyond the bound get no streams",
            )
        self._is_cut = is_cut
