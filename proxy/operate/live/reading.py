"""What `top` reads of a running proxy, once an interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from proxy.operate.administration.endpoints_commands import ENDPOINTS
from proxy.operate.administration.remote import Refused, Remote, answer, text
from proxy.operate.live.exposition import Page, parsed
from proxy.operate.live.overview import Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """listing: of the endpoints; None, with a note, where the key may not read it."""

    page: Page
    listing: Listing | None
    notes: Sequence[str] = ()


@contextmanager
def reader(proxy: Remote) -> Iterator[Callable[[], Reading]]:
    """Its function raises LaunchError: the proxy cannot be reached, or refuses /metrics."""
    with proxy.client() as client:

        def read() -> Reading:
            page = parsed(text(client, "/metrics", scope="metrics"))
            try:
                return Reading(page=page, listing=answer(client, "GET", ENDPOINTS))
            except Refused as error:
                note = f"Without the state and load of endpoints: {error}"
                return Reading(page=page, listing=None, notes=(note,))

        yield read
