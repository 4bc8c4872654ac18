"""The record of upstream's sources: what the script takes from a file, and what is checked in."""

from __future__ import annotations

import json
import re

import pytest

from build_engines.upstream.signatures import RecordedClasses
from tests.upstream import record


def sources() -> list[dict]:
    given = json.loads(record.SOURCES.read_text(encoding="utf-8"))
    files = [*given["classes"], *given["references"]]
    return files + [file for tool in given["tools"].values() for file in tool]


def test_every_source_is_a_file_at_a_commit_with_its_date():
    for source in sources():
        assert re.fullmatch(r"[0-9a-f]{40}", source["commit"]), source
        assert source["extracted"] in {"script", "transcript"}
        assert all(source[key] for key in ("repository", "path", "dated", "marker")), source


@pytest.mark.parametrize("name", ["tools", "classes", "references"])
def test_what_is_checked_in_names_the_same_sources(name):
    given = json.loads(record.SOURCES.read_text(encoding="utf-8"))[name]
    found = json.loads((record.RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    if name == "classes":
        assert found["sources"] == given
    elif name == "tools":
        assert {tool: row["sources"] for tool, row in found.items()} == given
    else:
        assert [row["source"] for row in found.values()] == given


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


def test_a_name_without_a_record_is_an_error():
    with pytest.raises(KeyError):
        RecordedClasses.read().parameters("LLM.fly")
    with pytest.raises(KeyError):
        RecordedClasses.read().fields("Nothing")
