"""The pages of the documentation, and what is read of their Markdown."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "examples" / "README.md",
    ]
)
FENCE = re.compile(r"^(\s*)(```+)[^\n]*\n.*?^\s*\2\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^]\[]*(?:\[[^]]*\][^]\[]*)*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


def prose(page: Path) -> str:
    """Without fenced code, in which nothing is Markdown."""
    return FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """The relative targets of its links, as they are written."""
    return [target for target in LINK.findall(prose(page)) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub and the site (pymdownx.slugs) name them."""
    return {slug(heading) for heading in HEADING.findall(prose(page))}


def slug(heading: str) -> str:
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def paths_in_code(page: Path) -> set[str]:
    """Files and folders of this repository that stand between backticks: `proxy/app.py`."""
    top = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir()))
    words = re.findall(r"`([^`\s]+)`", prose(page))
    return {word for word in words if re.fullmatch(rf"(?:{top})/[\w./*-]*", word)}
