"""Links, anchors and file names in the documentation lead somewhere. Standard library only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, paths_in_code, slug

SOURCES = [
    *ROOT.glob("Makefile"),
    *ROOT.glob("*.toml"),
    *(
        path
        for folder in ("proxy", "build_engines", "model_repository", "docker", "tests", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".yml", ".pbtxt", ".Dockerfile", ".sh", ".conf"}
    ),
]
# What a build makes, or a user writes; not in the repository.
MADE = ("artifacts/", "bench/")


def name(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert file.is_file(), f"{target}: there is no such file"
        assert file.suffix != ".md" or file in PAGES, f"{target}: not a page of `make docs`"
        if anchor:
            assert file.suffix == ".md", target
            assert anchor in anchors(file), f"{target}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_a_page_names_exists(page):
    for path in sorted(paths_in_code(page)):
        if not path.startswith(MADE):
            assert list(ROOT.glob(path.rstrip("/"))), f"{path} does not exist"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_has_two_headings_of_one_anchor(page):
    text = page.read_text()
    headings = [slug(found) for found in re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)]
    linked = {t.partition("#")[2] for p in PAGES for t in links(p) if "#" in t}
    assert [one for one in linked if headings.count(one) > 1] == []


def test_every_page_that_the_code_names_exists():
    missing = {
        f"{name(source)}: {page}"
        for source in SOURCES
        for page in re.findall(r"\bdocs/\w+\.md\b", source.read_text(errors="ignore"))
        if not (ROOT / page).is_file()
    }
    assert missing == set()


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            waiting += [
                (page.parent / t.partition("#")[0]).resolve() for t in links(page) if t[0] != "#"
            ]
    assert set(PAGES) - seen == set()
