"""The mutants of `make mutants` still fit the source, so that none of them tests nothing."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import ROOT, Mutant


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.fault)
def test_a_mutant_changes_one_place_and_is_tried_by_tests_that_everybody_runs(mutant: Mutant):
    assert (ROOT / mutant.path).read_text().count(mutant.before) == 1
    assert mutant.before != mutant.after
    for test in mutant.tests:
        assert (ROOT / test).exists()
        assert not test.startswith("tests/long")


def test_there_are_twenty_faults():
    assert len({mutant.fault for mutant in CATALOGUE}) == len(CATALOGUE) >= 20
