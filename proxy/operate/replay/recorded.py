"""Reads the records of a folder. Lines that were cut are counted, and passed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, StringConstraints, ValidationError

from proxy.journal.folder import record_files
from proxy.journal.journal import VERSION

PATH = r"^(/[a-z0-9_]+)+$"  # never another host, which would get the key
# Of the load and the callers at that time: sent again, they say nothing of the deployment.
OF_THE_MOMENT = (401, 403, 408, 409, 429)


class Recorded(BaseModel):
    """A line of proxy.journal.journal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    at: AwareDatetime
    tenant: str
    key_id: str
    request_id: str
    path: Annotated[str, StringConstraints(pattern=PATH)]
    model: str | None
    body: str
    status: int | None
    answer: str
    is_complete: bool
    ttft_ms: float | None
    duration_ms: float

    @property
    def can_be_compared(self) -> bool:
        """Whether the answer came to its end, and depended on the request alone."""
        status = self.status
        return self.is_complete and status is not None and _depends_on_the_request(status)


@dataclass(slots=True, kw_only=True)
class Selection:
    """Of the records. unreadable, passed_over: counted while they are read."""

    since: AwareDatetime | None = None
    tenant: str | None = None
    model: str | None = None
    unreadable: int = field(default=0, init=False)
    passed_over: int = field(default=0, init=False)

    def of(self, folder: Path) -> Iterator[Recorded]:
        """Those that can be compared. Raises OSError."""
        for day, file in record_files(folder):
            if self.since is None or day >= self.since.date():
                yield from self._of_file(file)

    def _of_file(self, file: Path) -> Iterator[Recorded]:
        with file.open("rb") as lines:
            for line in lines:
                if (found := self._read(line)) is not None and self._chooses(found):
                    if found.can_be_compared:
                        yield found
                    else:
                        self.passed_over += 1

    def _read(self, line: bytes) -> Recorded | None:
        if not line.strip():
            return None
        try:
            found = Recorded.model_validate_json(line)
        except ValidationError:
            found = None
        if found is None or found.version != VERSION:
            self.unreadable += 1
            return None
        return found

    def _chooses(self, found: Recorded) -> bool:
        is_early = self.since is not None and found.at < self.since
        is_other = self.tenant not in (None, found.tenant) or self.model not in (None, found.model)
        return not (is_early or is_other)


def _depends_on_the_request(status: int) -> bool:
    return status < 500 and status not in OF_THE_MOMENT
