"""An engine's own times in the record of a request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.domain.engine import EngineRequest
from proxy.domain.interrupt import Cause
from proxy.domain.model import ModelCard
from proxy.domain.output import EngineTimes, TokenDelta
from proxy.domain.record import RequestRecord, current_record
from proxy.domain.request import Sampling
from proxy.generation.stream.engine_stream import EngineStages
from tests.doubles.engine import FACTS

CARD = ModelCard(name="m", triton_model="m", facts=FACTS)
PART = EngineRequest(id="r", model=CARD, text="x", timeout_s=1, sampling=Sampling())
FIRST = TokenDelta((b"a",), queue_s=0.01)
LAST = TokenDelta((b"b",), times=EngineTimes(prefill_s=0.02, decode_s=0.03))


@pytest.fixture
def record() -> Iterator[RequestRecord]:
    found = RequestRecord()
    token = current_record.set(found)
    yield found
    current_record.reset(token)


def run(record: RequestRecord, last: TokenDelta | None, took_s: float = 1.0) -> dict[str, float]:
    """Seconds by stage of one part that took so long."""
    stages = EngineStages(record)
    sent = stages.begin(PART)
    assert sent.stage is record.stages[0]
    sent.stage.began -= took_s
    stages.see_first(FIRST)
    stages.end(last)
    record.end()
    return record.seconds()


def test_the_engines_times_end_with_the_last_response(record):
    found = run(record, LAST)
    assert found["triton"] == pytest.approx(1.0, abs=0.5)
    assert found["engine queue"] == pytest.approx(0.01)
    assert found["prefill"] == pytest.approx(0.02)
    assert found["decode"] == pytest.approx(0.03)
    triton, decode, prefill, queue = record.stages
    assert queue.ended == prefill.began
    assert prefill.ended == decode.began
    assert decode.ended == triton.ended
    assert {one.parent for one in (queue, prefill, decode)} == {triton}


def test_they_never_begin_before_their_stream(record):
    run(record, LAST, took_s=0.0)
    triton, *within = record.stages
    assert all(triton.began <= one.began <= one.ended <= triton.ended for one in within)


@pytest.mark.parametrize("last", [None, FIRST])
def test_an_engine_that_reports_no_times_has_no_stages_of_its_own(record, last):
    assert list(run(record, last)) == ["triton"]


def test_each_part_of_a_stream_has_a_stage_of_its_own(record):
    stages = EngineStages(record)
    stages.begin(PART)
    stages.lose(Cause.LOST)
    stages.begin(PART)
    stages.end(None)
    assert [(one.name.value, one.error) for one in record.stages] == [
        ("triton", "lost"),
        ("triton", None),
    ]
    assert all(one.ended is not None for one in record.stages)
