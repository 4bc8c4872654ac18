"""The Python models of model_repository/ as Triton sees them: their folder on the path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

for role in ("tokenizer", "engine", "detokenizer"):
    sys.path.append(str(Path(__file__).parents[2] / "model_repository" / role / "1"))
for double in ("backend", "packages"):
    sys.path.append(str(Path(__file__).parents[1] / "doubles" / double))

import pytest  # noqa: E402

from tests.fixtures.families import build_families, forget_oracles  # noqa: E402


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory) -> Iterator[Path]:
    yield build_families(tmp_path_factory.mktemp("families"))
    forget_oracles()
