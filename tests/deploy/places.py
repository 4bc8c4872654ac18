"""Where what is deployed lies, and what it may name."""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from proxy.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
MANIFESTS = sorted(
    path
    for path in (DOCKER / "kubernetes").glob("*/*.yaml")
    if path.name not in ("kustomization.yaml", "fields.yaml", "models.yaml")
)
SETTINGS = {name.upper() for name in Settings.model_fields}
# What others read: Python, the loader, huggingface_hub, Grafana, Open MPI, our own scripts, our
# commands, OpenTelemetry.
NOT_OURS = re.compile(
    r"PATH|PYTHON\w+|HF_HOME|HOME|HF_TOKEN|GF_\w+|OMPI_MCA_\w+|GPUS_PER_NODE|ADMIN_KEY"
    r"|OTEL_(EXPORTER_OTLP_ENDPOINT|SERVICE_NAME|TRACES_SAMPLER|TRACES_SAMPLER_ARG)"
)


def is_known(variable: str) -> bool:
    return variable in SETTINGS or NOT_OURS.fullmatch(variable) is not None


def documents(path: Path) -> list[dict[str, Any]]:
    """A copy of one's own: every file is parsed once."""
    return deepcopy(_parsed(path))


@cache
def _parsed(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def objects() -> list[dict[str, Any]]:
    """Of all manifests, as they are written."""
    return [each for path in MANIFESTS for each in documents(path)]


def find(value: Any, key: str) -> list[Any]:
    """Everything that stands under this key, however deep."""
    if isinstance(value, dict):
        here = [value[key]] if key in value else []
        return here + [found for each in value.values() for found in find(each, key)]
    if isinstance(value, list):
        return [found for each in value for found in find(each, key)]
    return []
