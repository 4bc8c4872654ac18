"""Where what is deployed lies, and what it may name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from proxy.operate.start import bound
from proxy.settings import Settings
from tests.fixtures.application import NONE
from tests.fixtures.stack import free_port

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


def starts_with_keys(given: Mapping[str, object]) -> None:
    """These settings, with a key, let a proxy listen where its image says.

    Raises LaunchError.
    """
    image = (DOCKER / "proxy.Dockerfile").read_text()
    host = re.search(r"HOST=(\S+)", image)
    assert host is not None
    words = ("plaintext", "tls_cert_file", "tls_key_file", "trusted_fronts", "client_name_header")
    chosen = {name: given[name.upper()] for name in words if name.upper() in given}
    settings = Settings(
        host=host[1], port=free_port(), api_key="k" * 32, models_file=NONE, **chosen
    )
    bound(settings).close()
