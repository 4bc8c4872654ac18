"""settings: names, defaults, and wrong values that name their variable."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.cli import explain
from proxy.settings import Settings


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
        ({"STALL_TIMEOUT_S": "0"}, "STALL_TIMEOUT_S=0"),
        ({"KEEP_ALIVE_S": "never"}, "KEEP_ALIVE_S=never"),
        ({"DEFAULT_MAX_TOKENS": "0"}, "DEFAULT_MAX_TOKENS=0"),
        ({"DEFAULT_TEMPERATURE": "2.5"}, "DEFAULT_TEMPERATURE=2.5"),
        ({"MAX_REQUEST_SIZE_MB": "-1"}, "MAX_REQUEST_SIZE_MB=-1"),
        ({"CORS_ORIGINS": "https://a.example/path"}, "CORS_ORIGINS=https://a.example/path"),
        ({"TRITON_CA_FILE": __file__}, "TRITON_URL must be grpcs://host:port with it"),
        ({"TRITON_URL": "grpcs://t:1", "TRITON_CA_FILE": "/no/ca"}, "TRITON_CA_FILE=/no/ca"),
        ({"TRITON_TRANSPORT": "grpc"}, "TRITON_TRANSPORT is no longer a setting"),
        ({"TRITON_SECRET": "short"}, "TRITON_SECRET must have 16 to 256 letters"),
        ({"TRITON_SECRET": "has,commas=and spaces"}, "TRITON_SECRET must have 16 to 256 letters"),
        ({"CORS_ORIGINS": "a.example"}, "CORS_ORIGINS=a.example"),
        ({"API_KEY": "k" * 31}, "API_KEY must have at least 32 printable ASCII characters"),
        (
            {"METRICS_KEY": "with spaces in it, but long enough"},
            "METRICS_KEY must have at least 32",
        ),
        ({"KEY_PEPPER": "sixteen-is-short"}, "KEY_PEPPER must have at least 32"),
        ({"AUTH": "on"}, "AUTH=on lets nobody in: set API_KEY or KEY_PEPPER or JWT_ISSUER"),
        ({"AUTH": "off", "API_KEY": "k" * 32}, "AUTH=off lets everybody in, so API_KEY has no"),
        ({"TENANT_FROM_METADATA": "1", "API_KEY": "k" * 32}, "TENANT_FROM_METADATA has no effect"),
        ({"METRICS_KEY": "k" * 32}, "METRICS_KEY alone lets no caller in"),
        ({"AUTH": "maybe"}, "AUTH=maybe"),
        ({"JWT_ISSUER": "https://a.example"}, "JWT_ISSUER needs JWT_AUDIENCE"),
        ({"JWT_AUDIENCE": "a"}, "JWT_AUDIENCE goes with JWT_ISSUER"),
        (
            {"JWT_ISSUER": "http://a.example", "JWT_AUDIENCE": "a"},
            "JWT_ISSUER=http://a.example: it must be https",
        ),
        ({"JWT_ALGORITHMS": "RS256,HS256"}, "JWT_ALGORITHMS_1=HS256"),
        ({"JWT_ALGORITHMS": "none"}, "JWT_ALGORITHMS_0=none"),
        ({"TRUSTED_FRONTS": "10.0.0.0/8"}, "CLIENT_NAME_HEADER and TRUSTED_FRONTS go together"),
        (
            {"TRUSTED_FRONTS": "my-front", "CLIENT_NAME_HEADER": "X-Name"},
            "TRUSTED_FRONTS_0=my-front",
        ),
        ({"PRIORITY_WORDS": "high"}, "'high' must be a new word and an integer"),
        ({"PRIORITY_WORDS": "high=1,high=2"}, "'high=2' must be a new word"),
        ({"PRIORITY_WORDS": "1=2"}, "'1=2' must be a new word"),
        ({"PRIORITY_WORDS": "high=9999999999"}, "PRIORITY_WORDS_HIGH=9999999999"),
        ({"TLS_CERT_FILE": __file__}, "TLS_CERT_FILE and TLS_KEY_FILE go together"),
        ({"TLS_CLIENT_CA_FILE": __file__}, "TLS_CLIENT_CA_FILE needs TLS_CERT_FILE"),
    ],
)
def test_a_wrong_value_names_its_variable(settings, environment, said):
    with pytest.raises(ValidationError) as refused:
        settings(**environment)
    assert said in (explain(refused.value) or "")


def test_an_empty_path_is_not_the_current_folder(settings):
    names = ("MODEL_PATH", "MODELS_FILE", "ARTIFACTS_DIR", "RECORD_DIR")
    assert Settings() == settings(**dict.fromkeys(names, ""))


def test_one_folder_runs_ten_requests_at_once_a_registry_any_number(settings):
    assert settings().concurrent_requests is None
    assert settings(MODEL_PATH="/m").concurrent_requests == 10
    assert settings(MAX_CONCURRENT_REQUESTS="3").concurrent_requests == 3


def test_without_keys_callers_may_have_the_highest_of_the_words(settings):
    assert settings().priority_ceiling == 10
    assert settings(PRIORITY_WORDS="low=-2, urgent = +3").priority_ceiling == 3
    assert settings(PRIORITY_WORDS="").priority_ceiling == 0
    assert settings(PRIORITY_WORDS="a=5", API_KEY="k" * 32).priority_ceiling == 0
    assert settings(MAX_PRIORITY="-4").priority_ceiling == -4


@pytest.mark.parametrize(
    ("environment", "origins"),
    [
        ({}, ()),
        ({"MODEL_PATH": "/m"}, ("*",)),
        ({"MODEL_PATH": "/m", "HOST": "localhost", "API_KEY": "k" * 32}, ("*",)),
        ({"MODEL_PATH": "/m", "CORS_ORIGINS": "https://a.example"}, ("https://a.example",)),
        ({"MODEL_PATH": "/m", "HOST": "0.0.0.0"}, ()),
        ({"MODEL_PATH": "/m", "HOST": "127.evil.example"}, ()),
        ({"MODEL_PATH": "/m", "FORWARDED_ALLOW_IPS": "127.0.0.1"}, ()),
        ({"MODEL_PATH": "/m", "ADMIN": "on"}, ()),
    ],
)
def test_one_folder_lets_every_page_call_while_only_this_machine_can(
    settings, environment, origins
):
    assert settings(**environment).origins == origins


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


def test_secrets_are_shown_nowhere(settings):
    given = {"TRITON_SECRET": "t" * 20, "API_KEY": "k" * 32, "KEY_PEPPER": "p" * 32}
    made = settings(**given)
    assert not [each for each in given.values() if each in repr(made) + str(made)]


@pytest.mark.parametrize(
    ("name", "instead"), [("WORKERS", "several"), ("idempotency_dir", "kept"), ("MAX_STOPS", "16")]
)
def test_a_setting_that_was_removed_stops_the_start_and_says_what_to_do(settings, name, instead):
    with pytest.raises(ValidationError) as refused:
        settings(**{name: "1"})
    line = explain(refused.value)
    assert line.startswith(f"{name.upper()} is no longer a setting, remove it: ")
    assert instead in line


def test_a_secret_that_is_refused_is_not_shown(settings):
    for name in ("API_KEY", "METRICS_KEY", "KEY_PEPPER", "TRITON_SECRET"):
        with pytest.raises(ValidationError) as refused:
            settings(**{name: "my-secret"})
        assert "my-secret" not in explain(refused.value)


@pytest.mark.parametrize(
    ("environment", "needed"),
    [
        ({}, False),
        ({"AUTH": "off"}, False),
        ({"API_KEY": "k" * 32}, True),
        ({"AUTH": "on", "KEY_PEPPER": "p" * 32}, True),
        ({"JWT_ISSUER": "https://a.example", "JWT_AUDIENCE": "a, b"}, True),
        ({"CLIENT_NAME_HEADER": "X-Name", "TRUSTED_FRONTS": "10.0.0.1,::1"}, True),
    ],
)
def test_a_caller_needs_a_key_as_soon_as_there_is_any_source(settings, environment, needed):
    assert settings(**environment).is_authenticated is needed


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (None, "in memory, for this proxy alone"),
        ("redis://user:word@state:6379/0", "in Redis at state:6379, shared with other proxies"),
        ("unix://:word@/run/redis.sock", "in Redis at /run/redis.sock, shared with other proxies"),
    ],
)
def test_the_start_can_say_where_live_state_is_without_the_password(settings, url, place):
    assert settings(**({} if url is None else {"LEDGER_URL": url})).live_state == place
