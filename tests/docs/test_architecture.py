"""docs/architecture.md is true: its order of packages is enforced, and its recipes name every file.

That the files exist is tested in test_links.py.
"""

from __future__ import annotations

import re

from tests.contract.test_imports import ORDER
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text()
CODE = [
    path
    for folder in ("proxy", "model_repository", "build_engines")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pbtxt"}
]
# They mention min_p and need no change for another parameter.
ELSEWHERE = {
    "model_repository/tensorrt_llm/ensemble.pbtxt",  # what the C++ backend lacks, in a comment
    "build_engines/gpu/options.py",  # the same of TensorRT-LLM's samplers
}


def section(heading: str, end: str = "\n## ") -> str:
    return TEXT.partition(heading)[2].partition(end)[0]


def test_the_packages_stand_in_the_order_of_their_imports():
    assert re.findall(r"`((?:proxy|build_engines)[\w.]*)`", section("## Packages\n")) == ORDER


def test_the_recipe_for_a_sampling_parameter_names_the_files_that_know_min_p():
    """Each file of the recipe knows min_p, and no other file has to, but for the C++ backend's."""
    recipe = section("**A sampling parameter.**", "\n**A ")
    paths = re.findall(r"`([\w./]+/[\w./]*)`", recipe)
    named = {ROOT / path for path in paths if not path.startswith("tests/")}
    knowing = {path for path in CODE if re.search(r"\bmin_p\b", path.read_text())}
    for path in named:
        if path.is_relative_to(ROOT / "proxy" / "generation"):
            continue  # of other parameters than min_p
        assert any(one == path or path in one.parents for one in knowing), path
    others = {
        one for one in knowing if not any(one == path or path in one.parents for path in named)
    }
    assert {one.relative_to(ROOT).as_posix() for one in others} <= ELSEWHERE


def test_no_file_outside_of_the_syntax_package_knows_a_family_by_name():
    outside = [
        path
        for path in (ROOT / "proxy").rglob("*.py")
        if not path.is_relative_to(ROOT / "proxy" / "language" / "syntax")
        and re.search(r"\b(hermes|kimi_k2|deepseek_v3)\b", path.read_text())
    ]
    assert outside == []
