"""The headers and comments that show a client where its request stands in the fair queue."""

from __future__ import annotations

from triton_openai.proxy.domain.generation import Report

NAMES = ("x-queue-position", "x-queue-wait")


def queue_headers(report: Report, now_s: float) -> dict[str, str]:
    """None for an answer that did not wait. An answer that has waited has position 0.

    now_s: the event loop's time.
    """
    queued, since_s = report.queued, report.queued_since
    if queued is not None and since_s is not None:
        position, waited_s = queued.position, max(report.queue_s or 0.0, now_s - since_s)
    elif report.queue_s is not None:
        position, waited_s = 0, report.queue_s
    else:
        return {}
    return dict(zip(NAMES, (str(position), f"{waited_s:.3f}"), strict=True))
