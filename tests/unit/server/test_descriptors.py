"""descriptors: the limit is raised as far as it may be, and clients do not get all of it."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from proxy.server.uvicorn_server import ENOUGH_DESCRIPTORS, OWN_DESCRIPTORS

ASK = """
import resource
from proxy.server import uvicorn_server
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(uvicorn_server.descriptors_for_clients(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        *((256, 256, 256), (256, 1024, 1024), (64, 64, 64)),
        # not without end: some programs that Triton starts close every number up to the limit
        pytest.param(
            *(256, ENOUGH_DESCRIPTORS + 1, ENOUGH_DESCRIPTORS),
            marks=pytest.mark.skipif(HARD <= ENOUGH_DESCRIPTORS, reason="not that many here"),
        ),
    ],
)
def test_the_limit_is_raised_as_far_as_is_useful(soft, hard, raised):
    assert asked(soft, hard) == (max(1, raised - OWN_DESCRIPTORS), raised, hard)


def asked(soft: int, hard: int) -> tuple[int, ...]:
    """In a process of its own: a hard limit does not come back."""
    code = ASK.format(soft=soft, hard=hard)
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return tuple(map(int, told.stdout.split()))
