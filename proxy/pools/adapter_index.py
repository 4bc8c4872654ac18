"""Which endpoints have a LoRA adapter in memory, as far as this process knows."""

from __future__ import annotations

from collections import OrderedDict

ADAPTERS_AN_ENDPOINT = 4  # the default of max_loras: adapters on a GPU at a time


class AdapterIndex:
    """The index of one pool. Each endpoint is its bit of `PrefixIndex.add_endpoint`.

    most: adapters that are remembered of each endpoint; the least recently used one goes first.
    """

    def __init__(self, most: int = ADAPTERS_AN_ENDPOINT) -> None:
        self._most = most
        self._holders: dict[str, int] = {}
        self._recent: dict[int, OrderedDict[str, None]] = {}

    def holders(self, adapter: str) -> int:
        """Bits of the endpoints that have it."""
        return self._holders.get(adapter, 0)

    def record(self, bit: int, adapter: str) -> None:
        """A request for the adapter was sent to the endpoint, which has loaded it then."""
        recent = self._recent.setdefault(bit, OrderedDict())
        recent[adapter] = None
        recent.move_to_end(adapter)
        self._holders[adapter] = self._holders.get(adapter, 0) | bit
        if len(recent) > self._most:
            self._drop(recent.popitem(last=False)[0], bit)

    def forget(self, bit: int) -> None:
        """The endpoint is gone, or was restarted."""
        for adapter in self._recent.pop(bit, ()):
            self._drop(adapter, bit)

    def _drop(self, adapter: str, bit: int) -> None:
        if bits := self._holders[adapter] & ~bit:
            self._holders[adapter] = bits
        else:
            del self._holders[adapter]
