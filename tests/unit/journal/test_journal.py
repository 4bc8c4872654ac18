"""Records are written by a thread, within bounds; old ones go; faults cost requests nothing."""

from __future__ import annotations

import asyncio
import json
import stat
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.journal.journal import Journal, JournalLimits, Recorded

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
BODY = '{"model":"demo","messages":[]}'
LIMITS = JournalLimits(keep_days=2, bytes=1_000_000)
RECORD = Recorded(
    at=NOON,
    tenant="acme",
    key_id="k1",
    request_id="req_1",
    path="/v1/chat/completions",
    body=BODY,
    status=200,
    answer='{"x": "Grüße\u2028"}',
    is_complete=True,
    ttft_ms=12.3,
    duration_ms=1500.0,
)


class Watched(Journal):
    """outcomes: how often each was counted. now: what its clock shows."""

    def __init__(self, folder: Path, limits: JournalLimits = LIMITS, **options: object) -> None:
        self.outcomes: Counter[str] = Counter()
        self.at = NOON
        super().__init__(folder, limits, self._add, now=lambda: self.at, **options)

    def _add(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def put(self, record: Recorded) -> None:
        assert self.hold(len(record.body))
        self.add(record, len(record.body))


async def write(journal: Watched, *records: Recorded) -> None:
    async with journal:
        for record in records:
            journal.put(record)


def run(journal: Watched, *records: Recorded) -> list[dict]:
    """Writes the records; returns all lines of the folder."""
    asyncio.run(write(journal, *records))
    assert journal._held.bytes == 0
    return lines(journal._folder)


def lines(folder: Path) -> list[dict]:
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for each in files for line in each.read_bytes().split(b"\n") if line]


def test_a_record_is_a_line_that_only_the_owner_may_read(tmp_path):
    journal = Watched(tmp_path / "a" / "b")
    (line,) = run(journal, RECORD)
    assert line == {
        "version": 1,
        "at": "2026-03-01T12:00:00Z",
        "tenant": "acme",
        "key_id": "k1",
        "request_id": "req_1",
        "path": "/v1/chat/completions",
        "model": "demo",
        "body": BODY,
        "status": 200,
        "answer": RECORD.answer,
        "is_complete": True,
        "ttft_ms": 12.3,
        "duration_ms": 1500.0,
    }
    (file,) = (tmp_path / "a" / "b").iterdir()
    assert file.name.startswith("2026-03-01.")
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (file, file.parent)]
    assert modes == [0o600, 0o700]
    assert journal.outcomes == {"written": 1}


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ('{"store":false}', "store_false"),
        ('{"store":false,"model":"m"}', "store_false"),
        ('{"store":null}', "written"),
        ("{", "invalid"),
        ("[]", "invalid"),
    ],
)
def test_what_its_caller_does_not_let_be_stored_is_not_written(tmp_path, body, outcome):
    journal = Watched(tmp_path)
    found = run(journal, replace(RECORD, body=body))
    assert len(found) == (outcome == "written")
    assert journal.outcomes == {outcome: 1}


def test_each_day_has_its_file_and_old_days_go(tmp_path):
    journal = Watched(tmp_path)
    for days in (5, 3, 2, 1):
        day = (NOON - timedelta(days=days)).date()
        (tmp_path / f"{day}.0a.jsonl").write_text("{}\n")
    (tmp_path / "notes.txt").write_text("mine")
    run(journal, RECORD)
    names = sorted(each.name.split(".")[0] for each in tmp_path.iterdir())
    assert names == ["2026-02-27", "2026-02-28", "2026-03-01", "notes"]
    other = Watched(tmp_path)
    other.at = NOON + timedelta(days=2)
    run(other, RECORD)
    names = sorted(each.name.split(".")[0] for each in tmp_path.iterdir())
    assert names == ["2026-03-01", "2026-03-03", "notes"]


def test_the_oldest_days_make_room_and_today_pauses_when_there_is_none(tmp_path):
    for name in ("2026-02-27.0a", "2026-02-28.0a", "2026-02-28.0b"):
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n" * 400)
    run(Watched(tmp_path, replace(LIMITS, bytes=900)))
    assert [each.name for each in sorted(tmp_path.iterdir())] == [
        "2026-02-28.0a.jsonl",
        "2026-02-28.0b.jsonl",
    ]
    (tmp_path / "2026-03-01.0c.jsonl").write_bytes(b"\n" * 1000)
    full = Watched(tmp_path, replace(LIMITS, bytes=900))
    with capture_logs() as logs:
        run(full, RECORD)
    assert [each.name for each in tmp_path.iterdir()] == ["2026-03-01.0c.jsonl"]
    assert full.outcomes == {"full": 1}
    assert [(each["log_level"], "advice" in each) for each in logs] == [("warning", True)]


def test_the_bound_holds_between_two_looks_into_the_folder(tmp_path):
    journal = Watched(tmp_path, replace(LIMITS, bytes=700))
    assert len(run(journal, *[RECORD] * 10)) == 2
    assert journal.outcomes == {"written": 2, "full": 8}


def test_a_folder_that_cannot_be_written_is_logged_once_and_counted(tmp_path):
    place = tmp_path / "file"
    place.write_text("no folder")
    journal = Watched(place)
    with capture_logs() as logs:
        asyncio.run(write(journal, *[RECORD] * 3))
        journal.put(RECORD)  # after the end
    assert journal.outcomes == {"failed": 4}
    assert [each["event"] for each in logs] == ["records cannot be written"]
    assert journal._held.bytes == 0


def test_a_line_that_was_cut_spoils_no_other(tmp_path):
    journal = Watched(tmp_path)

    async def main() -> None:
        async with journal:
            journal.put(RECORD)
            await asyncio.get_running_loop().run_in_executor(journal._thread, cut)
            journal.put(RECORD)

    def cut() -> None:
        _, file = journal._file
        file.write(b'{"half":')
        journal._fail(OSError("the file system is full"))

    with capture_logs():
        asyncio.run(main())
    (file,) = tmp_path.iterdir()
    found = [line for line in file.read_bytes().split(b"\n") if line]
    assert [line.startswith(b'{"version"') for line in found] == [True, False, True]


@pytest.mark.parametrize(("sample", "draw", "wants"), [(0, 0, 0), (1, 0.99, 1), (0.5, 0.5, 0)])
def test_a_share_of_the_requests_is_recorded(tmp_path, sample, draw, wants):
    journal = Watched(tmp_path, replace(LIMITS, sample=sample), draw=lambda: draw)
    assert journal.wants() == bool(wants)
