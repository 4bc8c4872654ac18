"""Usage so far, told with the chunks of a stream."""

from __future__ import annotations

from tests.api.test_parameters import BOTH, CHAT, events
from tests.doubles.engine import ScriptedEngine, deltas


@BOTH
def test_continuous_usage_grows_with_every_chunk(serve, path, body):
    options = {"stream": True, "stream_options": {"continuous_usage_stats": True}}
    chunks = events(serve(ScriptedEngine(deltas("abc"))).post(path, json={**body, **options}))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [*([0] if path == CHAT else []), 1, 2, 3, 4]
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {7}


@BOTH
def test_continuous_usage_of_many_choices_is_of_what_was_sent_of_all(serve, path, body):
    options = {"stream": True, "n": 3, "stream_options": {"continuous_usage_stats": True}}
    chunks = events(serve(ScriptedEngine(deltas("abc"))).post(path, json={**body, **options}))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert sorted(set(counts)) == list(range(0 if path == CHAT else 1, 13))
    assert counts == sorted(counts)


@BOTH
def test_no_usage_is_told_where_it_is_not_to_be_included(serve, path, body):
    told = {"include_usage": False, "continuous_usage_stats": True}
    options = {"stream": True, "stream_options": told}
    chunks = events(serve(ScriptedEngine(deltas("abc"))).post(path, json={**body, **options}))
    assert not any("usage" in chunk for chunk in chunks)
