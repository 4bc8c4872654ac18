"""Parsers of the user's own, named by entry points; names that are nobody's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from triton_openai.build_engines.models_file import ModelsFileError
from triton_openai.proxy.models import policy
from triton_openai.proxy.settings import Settings
from triton_openai.proxy.syntax.reasoning import families as reasoning
from triton_openai.proxy.syntax.tools import families as tools


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers a parser of each kind."""
    (tmp_path / "theirs.py").write_text(
        "from triton_openai.proxy.syntax.tools.call_objects import CallObjects\n"
        "from triton_openai.proxy.syntax.reasoning.parser import TaggedReasoning\n"
        "class Calls(CallObjects):\n    sections = (('<<', '>>'),)\n"
        "class Thoughts(TaggedReasoning):\n    starts, ends = ('((',), ('))',)\n"
    )
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[{tools.ENTRY_POINTS}]\ntheirs = theirs:Calls\n"
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


@pytest.mark.parametrize("field", ["tool_parser", "reasoning_parser"])
def test_a_name_that_is_nobodys_stops_the_start(tmp_path, field):
    models = {"m": {"weights": "w", field: "hermez"}}
    (tmp_path / "models.yaml").write_text(yaml.safe_dump({"models": models}))
    with pytest.raises(ModelsFileError, match=r"m: no parser is called 'hermez'"):
        policy.models(Settings(models_file=tmp_path / "models.yaml"))
