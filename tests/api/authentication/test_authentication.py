"""Who may call: every route, by keys, before the body is read, for HTTP and WebSockets alike."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone

import openai
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import WebSocketDenialResponse
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from proxy.api.batches.manifest import BATCH
from proxy.api.http import route_scopes
from proxy.api.manifest import Open
from proxy.domain.identity import Scope
from proxy.domain.model import CAPABILITIES, LoadedModel
from tests.api.formats import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory, whole_key
from tests.fixtures import issuer
from tests.fixtures.application import application
from tests.fixtures.file_server import FileServer
from tests.fixtures.own_server import served
from tests.fixtures.stack import eventually

API_KEY, METRICS_KEY = "the-one-key-of-these-tests-is-long", "the-key-of-prometheus-in-these-tests"
HI = [{"role": "user", "content": "hi"}]
CHAT = {"model": "demo", "messages": HI}
ASK = {"type": "predicate", "instructions": "It rains."}
SOCKET = "/v1/chat/completions/ws"
# What a POST needs for 200; other routes are asked by GET.
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/render": CHAT,
    "/v1/completions": {"model": "demo", "prompt": "hi"},
    "/v1/messages": {**CHAT, "max_tokens": 5},
    "/v1/messages/count_tokens": CHAT,
    "/v1/responses": {"model": "demo", "input": "hi"},
    "/v1/responses/compact": {"model": "demo", "input": "hi"},
    "/v1/responses/input_tokens": {"model": "demo", "input": "hi"},
    "/v1/embeddings": {"model": "demo", "input": "hi"},
    "/v1/rerank": {"model": "demo", "query": "hi", "documents": ["a"]},
    "/v1/score": {"model": "demo", "text_1": "hi", "text_2": "a"},
    "/v2/rerank": {"model": "demo", "query": "hi", "documents": ["a"]},
    "/rerank": {"model": "demo", "query": "hi", "documents": ["a"]},
    "/score": {"model": "demo", "text_1": "hi", "text_2": "a"},
    "/v1/decisions": {"model": "demo", "input": "hi", "questions": [ASK]},
    "/chat/json": CHAT,
    "/chat/stream": CHAT,
    "/chat/sse": CHAT,
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [104]},
}
TYPES = {401: "authentication_error", 403: "permission_error"}
# Those of a store, as below /admin/: tests/api/administration; of Triton's own models; and of
# files, which want a folder: tests/api/batches.
OF_OTHERS = {"/v1/usage", "/v2", *BATCH.routes}
NEEDS = {
    path: route.need
    for path, route in route_scopes.ROUTES.items()
    if path == "/" or not path.endswith("/")
}
OF_OPERATORS = {"/admin/v1/requests", "/admin/v1/requests/{request}"}  # by their prefix
ENDLESS = "/metrics/live"  # its answer: tests/api/observation/test_live_status.py
ROUTES = sorted(NEEDS.keys() - {SOCKET, ENDLESS, *OF_OTHERS})
TEMPLATES = {"{model:path}": "demo", "{name}": "docs.html", "{name:path}": "app.js"}


def assert_code(response, path: str, code: str, param: str | None = None) -> None:
    """Errors of Anthropic's API have neither code nor param."""
    if path.startswith("/v1/messages"):
        assert response.json()["error"]["type"] == TYPES[response.status_code]
    else:
        assert (error_of(response)["code"], error_of(response)["param"]) == (code, param)


class TwoModels(FixedCatalog):
    async def load(self):
        names = ("demo", "other")
        return tuple(LoadedModel(name=n, facts=FACTS, capabilities=CAPABILITIES) for n in names)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def ask(client, path: str, key: str | None, **headers: str):
    for template, name in TEMPLATES.items():
        path = path.replace(template, name)
    headers |= {} if key is None else bearer(key)
    if "{response_id}" in path:
        asked = {**BODIES["/v1/responses"], "background": True}
        kept = client.post("/v1/responses", json=asked, headers=headers).json()
        path = path.replace("{response_id}", kept.get("id", "nope"))
    body = {} if path.endswith("/cancel") else BODIES.get(path)
    if body is None:
        return client.get(path, headers=headers)
    return client.post(path, json=body, headers=headers)


@pytest.fixture
def keys() -> KeysInMemory:
    return KeysInMemory()


@pytest.fixture
def client(serve, keys):
    """With a store of keys, an API_KEY, and the models `demo` and `other`."""
    return serve(
        ScriptedEngine(deltas("a")),
        TwoModels(),
        keys=keys,
        api_key=API_KEY,
        metrics_key=METRICS_KEY,
        key_pepper=PEPPER,
    )


def test_every_route_of_the_application_has_a_scope(client):
    """HTTP and WebSockets, with those of routers inside."""
    served = set(route_scopes.paths(client.app.routes))
    assert served == (set(NEEDS) - OF_OTHERS) | OF_OPERATORS
    assert SOCKET in served


def test_a_route_without_a_scope_stops_the_start(client):
    @client.app.get("/forgotten")
    async def forgotten() -> None: ...

    with pytest.raises(ValueError, match="without a scope in route_scopes: /forgotten"):
        route_scopes.check(client.app.routes)


@pytest.mark.parametrize("path", ROUTES)
def test_a_route_wants_a_key_unless_it_is_for_anybody(client, path):
    response = ask(client, path, None)
    if NEEDS[path] is Open.ANYBODY:
        assert response.status_code in (200, 404)
        return
    assert response.status_code == 401
    assert_code(response, path, "missing_api_key")
    assert response.headers["www-authenticate"] == 'Bearer realm="triton-openai"'
    assert response.headers["connection"] == "close"
    assert ask(client, path, API_KEY).status_code == 200


@pytest.mark.parametrize("path", [path for path in ROUTES if isinstance(NEEDS[path], Scope)])
def test_a_route_needs_its_scope_and_no_other(client, keys, path):
    opening = {NEEDS[path], *({Scope.ADMIN} if NEEDS[path] is Scope.METRICS else ())}
    lacking = keys.add("lacks", scopes=frozenset(Scope) - opening)
    having = keys.add("has1", scopes=frozenset({NEEDS[path]}))
    response = ask(client, path, lacking)
    assert response.status_code == 403
    assert_code(response, path, "insufficient_scope")
    assert repr(NEEDS[path].value) in response.json()["error"]["message"]
    assert ask(client, path, having).status_code == 200


def test_an_admin_key_reads_metrics_and_cannot_chat(client, keys):
    admin = keys.add("admin", scopes=frozenset({Scope.ADMIN}))
    assert ask(client, "/metrics", admin).status_code == 200
    assert ask(client, "/v1/chat/completions", admin).status_code == 403


def test_the_key_of_prometheus_reads_metrics_and_nothing_else(client):
    assert {path for path in ROUTES if ask(client, path, METRICS_KEY).status_code == 200} == {
        "/metrics",
        *(path for path in ROUTES if NEEDS[path] is Open.ANYBODY and path != "/docs/{name}"),
    }


def test_an_unknown_path_says_nothing_to_strangers(client):
    assert client.get("/admin/v1/anything").status_code == 401
    assert client.get("/nope").status_code == 401
    assert client.get("/nope", headers=bearer(API_KEY)).status_code == 404
    assert client.get("/v1/models/", headers=bearer("x" * 20)).status_code == 401


@pytest.mark.parametrize("header", ["x-api-key", "api-key"])
def test_a_key_may_be_in_the_headers_of_other_apis(client, header):
    assert client.get("/v1/models", headers={header: API_KEY}).status_code == 200
    both = {header: API_KEY, **bearer(API_KEY)}
    assert client.get("/v1/models", headers=both).status_code == 200
    two = {header: API_KEY, **bearer(METRICS_KEY)}
    assert error_of(client.get("/v1/models", headers=two))["code"] == "conflicting_credentials"


def test_a_wrong_key_is_refused_before_the_body_is_read(client):
    seen = []

    async def receive():
        seen.append("read")
        return {"type": "http.request", "body": b"", "more_body": True}

    async def send(message):
        seen.append(message.get("status"))

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [(b"host", b"x"), (b"authorization", b"Bearer nope")],
        "client": ("10.0.0.1", 1),
        "query_string": b"",
    }
    client.portal.call(client.app, scope, receive, send)
    assert seen == [401, None]


def test_a_model_that_is_not_allowed(client, keys):
    key = bearer(keys.add("k1ey", models=("oth*",)))
    listed = client.get("/v1/models", headers=key).json()["data"]
    assert [model["id"] for model in listed] == ["other"]
    names = client.get("/dynamo/alpha/list-models", headers=key).json()
    assert names["completion_models"] == ["other"]
    missing = client.get("/v1/models/demo", headers=key)
    assert (missing.status_code, error_of(missing)["code"]) == (404, "model_not_found")
    assert client.get("/v1/models/other", headers=key).status_code == 200
    for path, body in BODIES.items():
        refused = client.post(path, json={**body, "model": "demo"}, headers=key)
        assert refused.status_code == 403, path
        assert_code(refused, path, "model_not_allowed", "model")
        allowed = client.post(path, json={**body, "model": "other"}, headers=key)
        assert allowed.status_code == 200, path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("demo", ["demo", "fast"]),
        ("b*", ["other", "best", "big"]),  # an alias allows its model, by all its names
        ("*", ["demo", "fast", "other", "best", "big"]),
        ("none", []),
    ],
)
def test_a_key_sees_the_aliases_of_its_models_alone(serve, keys, tmp_path, pattern, names):
    path = tmp_path / "models.yaml"
    models = {"demo": ["fast"], "other": ["best", "big"]}
    entries = {name: {"runtime": "remote", "aliases": own} for name, own in models.items()}
    path.write_text(json.dumps({"models": entries}))
    client = serve(ScriptedEngine(), TwoModels(), keys=keys, key_pepper=PEPPER, models_file=path)
    key = bearer(keys.add("k1ey", models=(pattern,)))
    listed = client.get("/v1/models", headers=key).json()["data"]
    assert [model["id"] for model in listed] == names
    assert client.get("/v1/models/fast", headers=key).is_success is ("fast" in names)


def test_a_request_without_a_model_takes_the_first_that_is_allowed(client, keys):
    key = bearer(keys.add("k1ey", models=("other",)))
    with capture_logs() as lines:
        assert client.post("/tokenize", json={"prompt": "hi"}, headers=key).status_code == 200
        assert client.post("/chat/json", json={"messages": HI}, headers=key).status_code == 200
    assert {one["model"] for one in lines if one["event"] == "request"} == {"other"}
    none = bearer(keys.add("k2ey", models=("nothing",)))
    refused = client.post("/tokenize", json={"prompt": "hi"}, headers=none)
    assert error_of(refused)["code"] == "model_not_allowed"
    assert client.get("/v1/models", headers=none).json()["data"] == []


def test_a_socket_wants_a_key_at_its_handshake(client, keys):
    lacking = keys.add("lacks", scopes=frozenset({Scope.MODELS}))
    cases = [
        ({}, 401, "missing_api_key"),
        (bearer("nope"), 401, "invalid_api_key"),
        (bearer(lacking), 403, "insufficient_scope"),
    ]
    for headers, status, code in cases:
        with (
            pytest.raises(WebSocketDenialResponse) as denied,
            client.websocket_connect(SOCKET, headers=headers),
        ):
            pass
        assert denied.value.status_code == status
        assert denied.value.json()["error"]["code"] == code
    with client.websocket_connect(SOCKET, headers=bearer(API_KEY)) as socket:
        socket.send_json(CHAT)
        assert "choices" in socket.receive_json()


def test_messages_of_a_socket_are_checked_for_their_model_and_after_a_revocation(client, keys):
    key = keys.add("k1ey", models=("demo",))
    with client.websocket_connect(SOCKET, headers=bearer(key)) as socket:
        socket.send_json({**CHAT, "model": "other"})
        assert socket.receive_json()["error"]["code"] == "model_not_allowed"
        socket.send_json(CHAT)
        while "choices" in (last := socket.receive_json()):
            pass
        assert last == {"type": "done"}
        keys.change("k1ey", revoked_at=datetime.now(timezone.utc))

        def is_refused() -> bool:
            socket.send_json(CHAT)
            found = []
            while not found or "choices" in found[-1]:
                found.append(socket.receive_json())
            return found[-1].get("error", {}).get("code") == "invalid_api_key"

        eventually(is_refused, 1, "the socket's key is revoked")


def test_a_revoked_key_ends_within_a_second(client, keys):
    key = bearer(keys.add("k1ey"))
    assert client.get("/v1/models", headers=key).status_code == 200
    keys.change("k1ey", revoked_at=datetime.now(timezone.utc))
    eventually(lambda: client.get("/v1/models", headers=key).status_code == 401, 1, "revoked")


def test_an_outage_of_the_store_shows_and_lets_known_keys_in(client, keys):
    known = bearer(keys.add("k1ey"))
    unknown = bearer(whole_key("other"))

    def is_known() -> bool:
        """Until the watch has seen the new key, it is looked up and not kept."""
        keys.reads.clear()
        return client.get("/v1/models", headers=known).status_code == 200 and not keys.reads

    eventually(is_known, 2, "the key is known")
    keys.is_down = True

    def up() -> float:
        text = client.get("/metrics", headers=bearer(METRICS_KEY)).text
        found = {
            tuple(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "proxy_authentication_source_up"
        }
        return found["store",]

    eventually(lambda: up() == 0, 1, "the metric shows the outage")
    assert client.get("/v1/models", headers=known).status_code == 200
    refused = client.get("/v1/models", headers=unknown)
    assert (refused.status_code, error_of(refused)["code"]) == (503, "authentication_unavailable")
    assert refused.headers["retry-after"] == "1"
    ready = client.get("/health/ready")
    assert ready.json() == {"status": "ready", "concerns": ["keys cannot be read"]}
    keys.is_down = False
    eventually(lambda: up() == 1, 1, "the metric shows its end")
    assert client.get("/health/ready").json() == {"status": "ready"}


def test_tokens_wait_for_an_issuer_that_is_away(serve):
    answers = {}
    with FileServer(answers) as server:
        client = serve(
            ScriptedEngine(),
            api_key=API_KEY,
            jwt_issuer=issuer.ISSUER,
            jwt_audience=(issuer.AUDIENCE,),
            jwt_jwks_url=server.url("/keys"),
        )
        refused = ask(client, "/v1/models", issuer.token())
        assert (refused.status_code, error_of(refused)["type"]) == (503, "server_error")
        concerns = ["the keys of the tokens' issuer cannot be fetched"]
        assert client.get("/health/ready").json() == {"status": "ready", "concerns": concerns}
        assert ask(client, "/v1/models", API_KEY).status_code == 200
        answers["/keys"] = orjson.dumps({"keys": [issuer.public_jwk("RS256", "one")]})
        token = issuer.token()
        eventually(lambda: ask(client, "/v1/models", token).status_code == 200, 8, "it is back")
        assert client.get("/health/ready").json() == {"status": "ready"}


def test_outcomes_are_counted_by_code(client):
    ask(client, "/v1/models", None)
    ask(client, "/v1/models", API_KEY)
    text = client.get("/metrics", headers=bearer(METRICS_KEY)).text
    assert 'proxy_authentications_total{outcome="missing_api_key"} 1.0' in text
    assert 'proxy_authentications_total{outcome="ok"} 2.0' in text


def test_the_log_line_has_tenant_and_key_id_and_no_log_has_a_key(client, keys, monkeypatch):
    key, written = keys.add("k1ey"), io.StringIO()
    with capture_logs() as lines:
        for sent in (key, whole_key("k1ey", "w"), "hostile-secret.with.dots", API_KEY):
            for path in ("/v1/chat/completions", "/nope", "/admin/v1/keys"):
                ask(client, path, sent)
        with client.websocket_connect(SOCKET, headers=bearer(key)) as socket:
            socket.send_json(CHAT)
            socket.receive_json()
    of_chat = [one for one in lines if one.get("path") == "/v1/chat/completions"]
    assert {"tenant": "acme", "key_id": "k1ey"}.items() <= of_chat[0].items()
    assert "key_id" not in of_chat[1]
    print(lines, file=written)
    text = written.getvalue() + client.get("/metrics", headers=bearer(METRICS_KEY)).text
    for secret in ("x" * 43, "w" * 43, "hostile-secret", API_KEY, METRICS_KEY, PEPPER):
        assert secret not in text


def test_a_preflight_needs_no_key_and_the_page_reads_the_refusal(serve):
    client = serve(ScriptedEngine(), api_key=API_KEY, cors_origins=("https://a.example",))
    page = {"origin": "https://a.example"}
    asks = {
        **page,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    allowed = client.options("/v1/chat/completions", headers=asks)
    assert allowed.status_code == 200
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    refused = client.get("/v1/models", headers=page)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://a.example"


def test_without_keys_anyone_may_do_everything(serve):
    client = serve(ScriptedEngine(deltas("a")))
    for path in ROUTES:
        assert ask(client, path, None).status_code == 200 or "{name}" in path
        assert ask(client, path, "any-key-at-all").status_code == 200 or "{name}" in path


def test_the_document_describes_keys_only_where_they_are_needed(serve, client):
    keyed = client.get("/openapi.json").json()
    assert set(keyed["components"]["securitySchemes"]) == {"bearer", "x-api-key", "api-key"}
    assert {"bearer": []} in keyed["paths"]["/v1/models"]["get"]["security"]
    assert "security" not in keyed["paths"]["/health"]["get"]
    assert "security" in keyed["paths"]["/metrics"]["get"]
    public = serve(ScriptedEngine(), api_key=API_KEY, public_metrics=True)
    public = public.get("/openapi.json").json()
    assert "security" not in public["paths"]["/metrics"]["get"]
    open_one = serve(ScriptedEngine()).get("/openapi.json").json()
    assert "securitySchemes" not in open_one["components"]


def test_a_front_names_the_tenant_by_a_client_certificate(serve):
    client = serve(
        ScriptedEngine(deltas("a")),
        client_name_header="X-Client-Name",
        trusted_fronts=["10.0.0.0/8", "testclient"][:1],
    )
    assert client.get("/v1/models", headers={"x-client-name": "acme"}).status_code == 401
    client.headers["x-client-name"] = "acme"
    client._transport.client = ("10.1.2.3", 5)
    with capture_logs() as lines:
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
        assert client.get("/metrics").status_code == 403
        assert client.get("/v1/models", headers=bearer("a-wrong-key")).status_code == 401
    assert lines[0]["key_id"] == "mtls:acme"
    client._transport.client = ("11.1.2.3", 5)
    assert client.get("/v1/models").status_code == 401


@pytest.mark.anyio
async def test_a_real_client_learns_at_its_handshake_why_it_is_refused():
    app = application(ScriptedEngine(deltas("a")), api_key=API_KEY)
    async with app.router.lifespan_context(app), served(app) as (host, port):
        url = f"ws://{host}:{port}{SOCKET}"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=bearer("wrong"))
        assert refused.value.response.status_code == 401
        assert b'"invalid_api_key"' in refused.value.response.body
        async with connect(url, additional_headers=bearer(API_KEY)) as socket:
            await socket.send(json.dumps(CHAT))
            assert "choices" in json.loads(await socket.recv())


@pytest.mark.anyio
async def test_openais_sdk_raises_its_own_errors(keys):
    limited = keys.add("k1ey", models=("other",), scopes=frozenset({Scope.CHAT, Scope.MODELS}))
    app = application(ScriptedEngine(deltas("a")), TwoModels(), keys=keys, key_pepper=PEPPER)
    async with app.router.lifespan_context(app), served(app) as (host, port):

        def sdk(key: str) -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(api_key=key, base_url=f"http://{host}:{port}/v1")

        async with sdk("sk-wrong") as stranger, sdk(limited) as caller:
            with pytest.raises(openai.AuthenticationError) as wrong:
                await stranger.models.list()
            assert (wrong.value.code, wrong.value.type) == (
                *("invalid_api_key", "authentication_error"),
            )
            with pytest.raises(openai.PermissionDeniedError) as model:
                await caller.chat.completions.create(model="demo", messages=HI)
            assert model.value.code == "model_not_allowed"
            with pytest.raises(openai.PermissionDeniedError) as scope:
                await caller.completions.create(model="other", prompt="hi")
            assert scope.value.code == "insufficient_scope"
            with pytest.raises(openai.NotFoundError):
                await caller.models.retrieve("demo")
            answer = await caller.chat.completions.create(model="other", messages=HI)
            assert answer.choices[0].message.content == "a"
            assert [one.id async for one in caller.models.list()] == ["other"]
