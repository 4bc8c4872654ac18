"""The record of upstream's sources: what the script takes from a file, and what is checked in."""

from __future__ import annotations

import json

import pytest

from build_engines.upstream.signatures import RecordedClasses
from tests.upstream import record


@pytest.mark.parametrize(
    ("reference", "place"),
    [
        ("references_committed/sampling_params", "SamplingParams"),
        ("references/sampling_params", "SamplingParams"),
        ("references_committed/completion_output", "CompletionOutput"),
        ("references/completion_output", "CompletionOutput"),
        ("references_committed/llm", "TorchLlmArgs"),
        ("references/llm", "TorchLlmArgs"),
    ],
)
def test_upstreams_own_reference_and_the_classes_agree(reference, place):
    """Two records of the same names and plain defaults, from different files of upstream."""
    references = json.loads((record.RECORDS / "references.json").read_text(encoding="utf-8"))
    fields = RecordedClasses.read().fields(place)
    of_the_other_class = {"kwargs", "enable_tqdm", "build_config"}
    rows = references[reference]["methods"]["__init__"]["parameters"]
    for name in rows.keys() - of_the_other_class:
        assert name in fields, name
        recorded = fields[name].get("default")
        is_plain = not isinstance(recorded, (dict, list))
        if is_plain and rows[name]["default"] not in ("inspect._empty", "None"):
            assert recorded == rows[name]["default"], name


def test_generate_async_has_all_that_upstreams_reference_has():
    references = json.loads((record.RECORDS / "references.json").read_text(encoding="utf-8"))
    known = RecordedClasses.read().parameters("LLM.generate_async")
    for reference in ("references/llm", "references_committed/llm"):
        named = references[reference]["methods"]["generate_async"]["parameters"]
        assert set(named) <= known
