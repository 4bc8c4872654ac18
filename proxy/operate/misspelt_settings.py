"""Finds environment variables that look like misspelt settings. Called by `cli` at the start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches

ALIKE = 0.88  # MAX_CHOICE and MAX_CHOICES, TRITON_GPRC_PORT and TRITON_GRPC_PORT
LEAST_LETTERS = 6  # many short variables resemble HOST or PORT
# Kubernetes sets variables for each service, such as TRITON_PORT=tcp://10.0.0.1:8001
_LINK_VALUES = ("tcp://", "udp://", "sctp://")
_LINK_ENDS = ("_SERVICE_HOST", "_SERVICE_PORT", "_ADDR", "_PROTO")
FOREIGN = frozenset({"LOGLEVEL"})  # of torch.distributed


def misspelt(variables: Mapping[str, str], settings: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields each such variable and the setting that it resembles. Ignores case.

    Args:
        settings: their names in upper case.
    """
    known = set(settings)
    for name, value in sorted(variables.items()):
        capitals = name.upper()
        if capitals in known or _is_foreign(capitals, value):
            continue
        if found := get_close_matches(capitals, known, n=1, cutoff=ALIKE):
            yield name, found[0]


def warn(say: Callable[[str], None]) -> None:
    """Says a line for each. Values are not shown, since one may be a secret."""
    from proxy.settings import Settings, environment

    names = [name.upper() for name in Settings.model_fields]
    for name, meant in misspelt(environment(), names):
        say(f"warning: {name} is not a setting and has no effect: did you mean {meant}?")


def _is_foreign(name: str, value: str) -> bool:
    is_link = value.startswith(_LINK_VALUES) or name.endswith(_LINK_ENDS)
    return len(name) < LEAST_LETTERS or is_link or name in FOREIGN
