"""A hook of MkDocs: files outside of docs/ that the pages link to become part of the site.

README.md becomes index.md, other Markdown files become pages under their own names, and all else is
copied. Links are rewritten to match, so pages work on the site and in the repository. A link to
something that does not exist stays as it is, and the strict build reports it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md")


def on_files(files: Files, config: Any) -> Files:
    """MkDocs calls it when it has found the files of docs/."""
    for page in PAGES:
        files.append(File.generated(config, site_path(page), abs_src_path=str(ROOT / page)))
    for page in list(files.documentation_pages()):
        for path in linked(repository_path(page.src_uri), page.content_string):
            if path.suffix != ".md" and files.get_file_from_path(site_path(str(path))) is None:
                source = str(ROOT / path)
                files.append(File.generated(config, site_path(str(path)), abs_src_path=source))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs calls it for each page before it is rendered."""
    here = repository_path(page.file.src_uri)

    def rewritten(link: re.Match[str]) -> str:
        path = target(here, link[0])
        if not (ROOT / path).is_file():
            return link[0]
        return posixpath.relpath(site_path(path), posixpath.dirname(page.file.src_uri) or ".")

    return LINK.sub(rewritten, markdown)


def linked(page: str, text: str) -> list[Path]:
    """Files outside of docs/ that a page links to."""
    paths = [Path(target(page, link)) for link in LINK.findall(text)]
    return [path for path in paths if path.parts[0] != "docs" and (ROOT / path).is_file()]


def target(page: str, link: str) -> str:
    """The path in the repository that a link of a page means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(path: str) -> str:
    """A path of the repository -> its place in the site's sources."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def repository_path(site: str) -> str:
    if site == "index.md":
        return "README.md"
    return site if site in PAGES else f"docs/{site}"
