"""Parsers and guides of users' own, named by entry points; names that do not exist."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from build_engines.models_file import ModelsFileError
from proxy.domain.tools import Tool, ToolChoice, ToolMode
from proxy.language.syntax.reasoning import families as reasoning
from proxy.language.syntax.tools import families as tools
from proxy.language.syntax.tools.call_guides import FALLBACK_FAMILY, call_guide
from proxy.models import policy
from proxy.settings import Settings


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers a parser of each kind."""
    (tmp_path / "theirs.py").write_text(
        "from proxy.language.syntax.tools.call_objects import CallObjects\n"
        "from proxy.language.syntax.reasoning.parser import TaggedReasoning\n"
        "class Calls(CallObjects):\n    sections = (('<<', '>>'),)\n"
        "from proxy.language.syntax.tools.call_syntax import CallSyntax\n"
        "from proxy.language.syntax.tools.family import ToolFamily\n"
        "SYNTAX = CallSyntax(begin='<<{\"name\": \"', middle='\", \"arguments\": ', end='}>>')\n"
        "GUIDED = ToolFamily(parser_type=Calls, call_syntax=SYNTAX)\n"
        "class Thoughts(TaggedReasoning):\n    starts, ends = ('((',), ('))',)\n"
    )
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[{tools.ENTRY_POINTS}]\ntheirs = theirs:Calls\nguided = theirs:GUIDED\n"
        f"[{reasoning.ENTRY_POINTS}]\ntheirs = theirs:Thoughts\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("theirs", None)


def test_a_parser_of_an_installed_package_is_found(package):
    parser = tools.family("theirs").make({"f": {}})
    events = parser.push('<<{"name": "f", "arguments": {}}>>')
    assert events[0].name == "f"
    assert reasoning.family("theirs").parser_type().push("((hm")[0].text == "hm"


def test_a_family_of_an_installed_package_brings_its_guide(package):
    """A parser alone has no guide: required calls are written as a list of JSON objects."""
    given = [Tool(name="f", is_strict=True)]
    required = ToolChoice(mode=ToolMode.REQUIRED)
    own = call_guide("guided", given, required, in_parallel=False)
    assert own.family == "guided"
    assert '<<{\\"name\\": \\"f\\"' in own.constraint.text
    assert call_guide("theirs", given, required, in_parallel=False).family == FALLBACK_FAMILY
    assert call_guide("theirs", given, ToolChoice(), in_parallel=False) is None


@pytest.mark.parametrize("field", ["tool_parser", "reasoning_parser"])
def test_an_unknown_name_stops_the_start(tmp_path, field):
    models = {"m": {"weights": "w", field: "hermez"}}
    (tmp_path / "models.yaml").write_text(yaml.safe_dump({"models": models}))
    with pytest.raises(ModelsFileError, match=r"m: no parser is called 'hermez'"):
        policy.models(Settings(models_file=tmp_path / "models.yaml"))
