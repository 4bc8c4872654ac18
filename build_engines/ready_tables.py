"""The tokenizer's tables where they stand beside the weights already, as in the shipped demo model.

They are then taken as they are, so that no tool of a build is needed. Called by `onnx_build` and
`scripted_build`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from build_engines import tokenizer_tables
from build_engines.facts import Facts

FACTS = "facts.json"


def are_in(folder: Path) -> bool:
    return all((folder / name).is_file() for name in tokenizer_tables.FILES)


def copy(folder: Path, target: Path, facts: Facts) -> None:
    """Copies the tables into `target`, and writes these facts in place of the folder's."""
    for name in tokenizer_tables.FILES:
        if name != FACTS:
            shutil.copyfile(folder / name, target / name)
    facts.write(target / FACTS)


def facts(folder: Path) -> Facts:
    return Facts.read(folder / FACTS)
