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


@pytest.mark.parametrize(("soft", "hard"), [(256, 256), (256, 1024), (64, 64)])
def test_up_to_the_hard_limit(soft, hard):
    assert asked(soft, hard) == (max(1, hard - OWN_DESCRIPTORS), hard, hard)


@pytest.mark.skipif(HARD < ENOUGH_DESCRIPTORS + 1, reason="this process may not have as many")
def test_but_not_without_end():
    """Some programs that Triton starts close every number up to the limit."""
    assert asked(256, ENOUGH_DESCRIPTORS + 1) == (
        ENOUGH_DESCRIPTORS - OWN_DESCRIPTORS,
        ENOUGH_DESCRIPTORS,
        ENOUGH_DESCRIPTORS + 1,
    )


def asked(soft: int, hard: int) -> tuple[int, ...]:
    """In a process of its own: a hard limit does not come back."""
    code = ASK.format(soft=soft, hard=hard)
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return tuple(map(int, told.stdout.split()))
