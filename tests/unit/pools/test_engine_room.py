"""What one engine's reports do to the number of streams that it gets."""

from __future__ import annotations

from proxy.domain.endpoints import EngineLoad
from proxy.pools.queue_capacity import GROWS_LESS_AFTER, EngineRoom, usual_spare

ROWS, SPARE = 16, 2


def room() -> EngineRoom:
    return EngineRoom(ROWS, (SPARE, 5))


def load(waiting: int, running: int, kv: float = 0.3, *, is_stale: bool = False) -> EngineLoad:
    return EngineLoad(waiting=waiting, running=running, kv_in_use=kv, is_stale=is_stale)


def test_an_eighth_of_the_rows_is_spare_at_least_and_a_quarter_at_most():
    assert [usual_spare(rows) for rows in (1, 8, 9, 64)] == [(1, 2), (1, 2), (2, 3), (8, 16)]


def test_an_engine_that_reports_nothing_gets_its_rows_and_the_spare():
    one = room()
    assert (one.streams, one.in_engine) == (18, None)
    one.see(EngineLoad(is_stale=False))
    assert (one.streams, one.in_engine) == (18, None)


def test_requests_that_wait_for_a_row_change_nothing_while_there_is_memory():
    one = room()
    one.see(load(9, 3))  # all of them are new, and the engine is in a long step
    assert (one.streams, one.in_engine) == (18, 12)


def test_an_engine_that_has_no_memory_for_its_rows_gets_what_it_runs_and_the_spare():
    one = room()
    one.see(load(11, 7, kv=0.97))
    assert one.streams == 9


def test_it_gets_one_more_with_each_report_that_finds_its_own_queue_short():
    one = room()
    one.see(load(11, 7, kv=0.97))
    seen = []
    for _ in range(12):
        one.see(load(2, 7, kv=0.95))
        seen.append(one.streams)
    assert seen == [10, 11, 12, 13, 14, 15, 16, 17, 18, 18, 18, 18]


def test_full_memory_without_a_queue_is_a_full_engine_and_nothing_else():
    one = room()
    one.see(load(0, 16, kv=1.0))
    assert one.streams == 18


def test_an_engine_that_runs_nothing_for_lack_of_memory_gets_a_stream():
    one = EngineRoom(1, (0, 0))
    one.see(load(4, 0, kv=1.0))
    assert one.streams == 1


def test_a_stale_report_is_marked_and_not_used():
    one = room()
    one.see(load(11, 7, kv=0.97, is_stale=True))
    assert one.is_stale
    assert one.streams == 18
    one.see(load(0, 7))
    assert not one.is_stale


def test_idle_rows_while_streams_wait_here_add_spare_streams_up_to_a_bound():
    one = room()
    seen = []
    for _ in range(5):
        one.see(load(0, 12), has_backlog=True)
        seen.append(one.streams)
    assert seen == [19, 20, 21, 21, 21]


def test_idle_rows_without_a_backlog_are_only_a_lack_of_requests():
    one = room()
    one.see(load(0, 3))
    assert one.streams == 18


def test_spare_streams_go_again_when_no_row_was_idle_for_long():
    one = room()
    one.see(load(0, 12), has_backlog=True)
    for _ in range(GROWS_LESS_AFTER - 1):
        one.see(load(1, 16), has_backlog=True)
    assert one.streams == 19
    one.see(load(1, 16), has_backlog=True)
    assert one.streams == 18
    for _ in range(5 * GROWS_LESS_AFTER):
        one.see(load(1, 16), has_backlog=True)
    assert one.streams == 18
