"""settings: names, defaults, and wrong values that name their variable."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from triton_openai.proxy.processes.errors import explain
from triton_openai.proxy.settings import Settings


@pytest.fixture
def settings(monkeypatch):
    """settings(NAME=value, …) -> what that environment gives."""

    def read(**environment: str) -> Settings:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return Settings()

    return read


def test_the_other_names_of_host_and_port(settings):
    read = settings(SERVER_PORT="8081", SERVER_HOST="::1")
    assert (read.port, read.host) == (8081, "::1")
    assert settings(PORT="8081").port == 8081


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PORT": "1", "SERVER_PORT": "2"}, "PORT=1 and SERVER_PORT=2 are the same setting"),
        ({"SERVER_PORT": "many"}, "SERVER_PORT=many"),
        ({"MODEL_PATH": "/m", "MODELS_FILE": "f"}, "MODELS_FILE and MODEL_PATH both"),
        ({"MODEL_ID": "m"}, "MODEL_ID names the model of MODEL_PATH, which is not set"),
        ({"MODEL_PATH": "/m", "MODEL_ID": "a/b"}, "MODEL_ID=a/b"),
        ({"MAX_CONCURRENT_REQUESTS": "0"}, "MAX_CONCURRENT_REQUESTS=0"),
        ({"MAX_SOCKET_REQUESTS": "0"}, "MAX_SOCKET_REQUESTS=0"),
        ({"STALL_TIMEOUT_S": "0"}, "STALL_TIMEOUT_S=0"),
        ({"KEEP_ALIVE_S": "never"}, "KEEP_ALIVE_S=never"),
        ({"DEFAULT_MAX_TOKENS": "0"}, "DEFAULT_MAX_TOKENS=0"),
        ({"DEFAULT_TEMPERATURE": "2.5"}, "DEFAULT_TEMPERATURE=2.5"),
        ({"MAX_REQUEST_SIZE_MB": "-1"}, "MAX_REQUEST_SIZE_MB=-1"),
        ({"CORS_ORIGINS": "https://a.example/path"}, "CORS_ORIGINS=https://a.example/path"),
        ({"TRITON_TRANSPORT": "carrier pigeon"}, "TRITON_TRANSPORT=carrier pigeon"),
        ({"TRITON_CA_FILE": __file__}, "TRITON_URL must be grpcs://host:port with it"),
        ({"TRITON_URL": "grpcs://t:1", "TRITON_CA_FILE": "/no/ca"}, "TRITON_CA_FILE=/no/ca"),
        (
            {"TRITON_CONNECTION_AGE_S": "300", "TRITON_TRANSPORT": "grpc"},
            "TRITON_CONNECTION_AGE_S=300 goes with TRITON_TRANSPORT=lean only",
        ),
        ({"TRITON_SECRET": "short"}, "TRITON_SECRET must have 16 to 256 letters"),
        ({"TRITON_SECRET": "has,commas=and spaces"}, "TRITON_SECRET must have 16 to 256 letters"),
        ({"CORS_ORIGINS": "a.example"}, "CORS_ORIGINS=a.example"),
    ],
)
def test_a_wrong_value_names_its_variable(settings, environment, said):
    with pytest.raises(ValidationError) as refused:
        settings(**environment)
    assert said in (explain(refused.value) or "")


def test_one_folder_runs_ten_requests_at_once_a_registry_any_number(settings):
    assert settings().concurrent_requests is None
    assert settings(MODEL_PATH="/m").concurrent_requests == 10
    assert settings(MAX_CONCURRENT_REQUESTS="3").concurrent_requests == 3


def test_origins_stand_between_commas(settings):
    assert settings().cors_origins == ()
    assert settings(CORS_ORIGINS="*").cors_origins == ("*",)
    origins = "https://a.example, http://localhost:3000,"
    assert settings(CORS_ORIGINS=origins).cors_origins == (
        "https://a.example",
        "http://localhost:3000",
    )


@pytest.mark.parametrize(
    ("url", "target", "is_tls"),
    [
        (None, "127.0.0.1:8001", False),
        ("far:9001", "far:9001", False),
        ("grpc://far:9001", "far:9001", False),
        ("grpcs://far:9001", "far:9001", True),
    ],
)
def test_where_triton_is(settings, url, target, is_tls):
    read = settings() if url is None else settings(TRITON_URL=url)
    assert (read.triton_target, read.triton_is_tls) == (target, is_tls)


def test_the_message_about_a_wrong_secret_does_not_show_it(settings):
    with pytest.raises(ValidationError) as refused:
        settings(TRITON_SECRET="wrong, and secret")
    assert "and secret" not in (explain(refused.value) or "")


def test_the_secret_is_shown_nowhere_but_reaches_workers(settings):
    made = settings(TRITON_SECRET="a-long-enough-secret")
    assert "a-long-enough" not in repr(made) + str(made)
    sent = made.model_dump(mode="json", exclude_unset=True)
    assert Settings(**sent).triton_secret_value == "a-long-enough-secret"
