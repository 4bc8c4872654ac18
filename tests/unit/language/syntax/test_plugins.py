"""Parsers and guides of users' own, named by entry points; names that do not exist."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from build_engines.models_file import ModelsFileError
from proxy.domain.tools import Tool
from proxy.language.syntax.families import (
    REASONING_ENTRY_POINTS,
    TOOL_ENTRY_POINTS,
    reasoning_family,
    tool_family,
)
from proxy.language.syntax.guides import FALLBACK_FAMILY, GuideOrder, guides_of
from proxy.models import policy
from proxy.settings import Settings


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers a parser of each kind."""
    (tmp_path / "theirs.py").write_text(
        "from proxy.language.syntax.call_syntax import CallSyntax\n"
        "from proxy.language.syntax.json_calls import CallObjects\n"
        "from proxy.language.syntax.reasoning import TaggedReasoning\n"
        "class Calls(CallObjects):\n    sections = (('<<', '>>'),)\n"
        "class Guided(Calls):\n"
        '    call_syntax = CallSyntax(begin=\'<<{"name": "\','
        " middle='\", \"arguments\": ', end='}>>')\n"
        "class Thoughts(TaggedReasoning):\n    starts, ends = ('((',), ('))',)\n"
    )
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[{TOOL_ENTRY_POINTS}]\ntheirs = theirs:Calls\nguided = theirs:Guided\n"
        "wrong = theirs:Thoughts\n"
        f"[{REASONING_ENTRY_POINTS}]\ntheirs = theirs:Thoughts\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("theirs", None)


def test_a_parser_of_an_installed_package_is_found(package):
    events = tool_family("theirs")({"f": {}}).push('<<{"name": "f", "arguments": {}}>>')
    assert events[0].name == "f"
    assert reasoning_family("theirs")().push("((hm")[0].text == "hm"


def test_a_parser_of_another_kind_is_refused(package):
    with pytest.raises(KeyError, match="not a subclass of ToolParser"):
        tool_family("wrong")


@pytest.mark.parametrize(
    ("name", "must_call", "family"),
    [("guided", True, "guided"), ("theirs", True, FALLBACK_FAMILY), ("theirs", False, None)],
)
def test_a_family_of_an_installed_package_brings_its_guide(package, name, must_call, family):
    """Without a syntax for guides, required calls are written as a list of JSON objects."""
    order = GuideOrder(
        constraint=None,
        tools=(Tool(name="f", is_strict=True),),
        must_call=must_call,
        in_parallel=False,
        family=name,
        reasoning=None,
        special_tokens={},
    )
    found = guides_of(order)
    assert found.family == family
    if family == "guided":
        assert '<<{\\"name\\": \\"f\\"' in found.answer.text


@pytest.mark.parametrize("field", ["tool_parser", "reasoning_parser"])
def test_an_unknown_name_stops_the_start(tmp_path, field):
    models = {"m": {"weights": "w", field: "hermez"}}
    (tmp_path / "models.yaml").write_text(yaml.safe_dump({"models": models}))
    with pytest.raises(ModelsFileError, match=r"m: no parser is called 'hermez'"):
        policy.models(Settings(models_file=tmp_path / "models.yaml"))
