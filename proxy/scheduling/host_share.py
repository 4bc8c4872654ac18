"""Divides the capacity of a pool among the hosts whose proxies use it."""

from __future__ import annotations

from collections.abc import Callable

Share = Callable[[int], int]


def whole(streams: int) -> int:
    """The share of the only host."""
    return streams


def host_share(streams: int, *, proxies: int, workers: int) -> int:
    """How many of a queue's streams this host may run, rounded up so that no row stays idle.

    Args:
        streams: that the pool can run for all hosts.
        proxies: processes that live on all hosts, as `RedisLink.proxies` counts them.
        workers: those of this host, which share one queue; 1 or more.
    """
    return -(-streams * workers // max(proxies, workers))
