"""The headers and comments that show a client where its request stands in the fair queue."""

from __future__ import annotations

from proxy.domain.record import RequestRecord

NAMES = ("x-queue-position", "x-queue-wait")


def queue_headers(record: RequestRecord, now_s: float) -> dict[str, str]:
    """None for an answer that did not wait. An answer that has waited has position 0; the wait of
    one that still waits is what it will probably be in all.

    now_s: the event loop's time.
    """
    queued, since_s = record.queued, record.queued_since
    if queued is not None and since_s is not None:
        position = queued.position
        wait_s = max(record.queue_s or 0.0, now_s - since_s, record.expected_wait_s)
    elif record.queue_s is not None:
        position, wait_s = 0, record.queue_s
    else:
        return {}
    return dict(zip(NAMES, (str(position), f"{wait_s:.3f}"), strict=True))
