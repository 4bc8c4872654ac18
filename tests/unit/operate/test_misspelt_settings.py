"""misspelt: names variables that are nearly a setting, and no other."""

from __future__ import annotations

import pytest

from proxy.operate.misspelt_settings import misspelt
from proxy.settings import Settings

SETTINGS = [name.upper() for name in Settings.model_fields]


def found(**variables: str) -> dict[str, str]:
    return dict(misspelt(variables, SETTINGS))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MAX_CHOICE", "MAX_CHOICES"),
        ("TRITON_GPRC_PORT", "TRITON_GRPC_PORT"),
        ("REQUEST_TIMEOUT", "REQUEST_TIMEOUT_S"),
        ("model_file", "MODELS_FILE"),
        ("LOG_LEVL", "LOG_LEVEL"),
        ("CORS_ORIGIN", "CORS_ORIGINS"),
    ],
)
def test_a_variable_that_is_nearly_a_setting_is_named(name, meant):
    assert found(**{name: "1"}) == {name: meant}


@pytest.mark.parametrize("name", [*SETTINGS, *(setting.lower() for setting in SETTINGS)])
def test_a_setting_is_not_misspelt(name):
    assert found(**{name: "1"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("HOME", "PATH", "HOSTNAME", "PORTS", "SHOST", "LOGNAME", "HF_HOME", "LOGLEVEL"),
        *("TRITON_SERVER_VERSION", "TRITON_SERVER_GPU_ENABLED", "NVIDIA_TRITON_SERVER_VERSION"),
        *("TRITON_CACHE_DIR", "TRITON_HOME", "MAX_JOBS", "OMP_NUM_THREADS", "TORCH_INDEX_URL"),
        *("GPUS_PER_NODE", "GRAFANA_PASSWORD", "HTTP_PROXY"),
    ],
)
def test_a_variable_of_another_program_is_not(name):
    assert found(**{name: "1"}) == {}


def test_what_kubernetes_sets_for_services_is_not():
    """The manifests' own services are called `triton` and `proxy`."""
    links = {
        "TRITON_PORT": "tcp://10.0.0.1:8001",
        "TRITON_SERVICE_HOST": "10.0.0.1",
        "TRITON_SERVICE_PORT": "8001",
        "TRITON_SERVICE_PORT_GRPC": "8001",
        "TRITON_PORT_8001_TCP": "tcp://10.0.0.1:8001",
        "TRITON_PORT_8001_TCP_ADDR": "10.0.0.1",
        "TRITON_HTTP_PORTS": "tcp://10.0.0.1:8000",
        "MAX_CHOICE_SERVICE_HOST": "10.0.0.1",
    }
    assert found(**links) == {}
