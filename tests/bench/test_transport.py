"""The benchmark of the transports reads what its peer sends."""

from __future__ import annotations

import pytest
import uvloop

from tests.bench import transport


@pytest.fixture(scope="module")
def target():
    with transport.peer() as found:
        yield found


@pytest.mark.parametrize("name", transport.TRANSPORTS)
def test_each_transport_reads_every_message(target, name):
    assert uvloop.run(transport.cost(target, name, 8, paced=False)) > 0
