"""Files, and the batches that are made of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.settings.group import AtMost, Group

Megabytes = Annotated[float, Field(gt=0, le=1_000_000)]


class Batches(Group):
    """Files and batches (/v1/files, /v1/batches)"""

    files_url: str | None = None
    """Where files and batches are kept: a folder, or a store such as `s3://bucket/path`, `gs://` or
    `az://`, whose credentials are variables of its own. Without it: `files` in `ARTIFACTS_DIR` if
    that is set, else in `~/.local/share/triton-openai` (`XDG_DATA_HOME`); with `LEDGER_URL`, the
    server then has neither files nor batches. Set it where several proxies share them."""
    files_keep_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """How long a file or a batch is kept, unless it was created for less. Set it as your rules of
    retention say."""
    max_file_mb: Megabytes = 200.0
    """One file. Lower it where files fill the disk."""
    max_tenant_files_mb: Megabytes = 2000.0
    """All files of one tenant. Raise it where there is room."""
    max_batch_lines: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    """Requests of one batch. Lower it where batches take too long."""
    max_open_batches: AtMost = 20
    """Batches of one tenant that have not ended. Lower it where tenants queue too much work."""
    batch_rate: Annotated[float, Field(ge=0, le=10)] = 0.5
    """What the tokens of a batch cost, as a part of the model's `price`. 1 for the whole price."""
