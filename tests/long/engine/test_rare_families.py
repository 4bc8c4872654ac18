"""The architectures that tests/engine leaves out, built and served as it builds the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.families import RARE, build_families
from tests.fixtures.onnx_runtimes import (
    assert_greedy_tokens_are_the_oracles,
    assert_the_tables_bytes_are_the_tokenizers_decode,
)


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_families(tmp_path_factory.mktemp("rare"), RARE)


@pytest.mark.parametrize("family", RARE)
def test_greedy_tokens_are_the_oracles(rare, family):
    assert_greedy_tokens_are_the_oracles(rare / family)


@pytest.mark.parametrize("family", RARE)
def test_the_tables_bytes_are_the_tokenizers_decode(rare, family):
    assert_the_tables_bytes_are_the_tokenizers_decode(rare / family)
