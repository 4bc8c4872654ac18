"""Settings -> the journal of recorded requests. Called by `app`."""

from __future__ import annotations

from proxy.journal.folder import JournalLimits
from proxy.journal.journal import Journal
from proxy.settings import Settings
from proxy.telemetry.metrics import Metrics

GB = 1_000_000_000


def journal(settings: Settings, metrics: Metrics) -> Journal | None:
    """None: there is no folder, so nothing is recorded."""
    if settings.record_dir is None:
        return None
    limits = JournalLimits(
        keep_days=settings.record_keep_days,
        bytes=int(settings.max_record_gb * GB),
        sample=settings.record_sample,
    )
    return Journal(settings.record_dir, limits, metrics.count_record)
