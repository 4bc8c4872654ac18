from __future__ import annotations

import pytest
from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from proxy.api.http.body_reader import BodyLimits, BodyReader, BytesInFlight
from proxy.api.http.typed_route import FastPath, typed_router
from tests.doubles.sandbox import InProcess

router = typed_router(BodyReader(BodyLimits(), InProcess(), BytesInFlight(1000)), "/v1")


class Named(BaseModel):
    name: str


@router.post("/plain")
async def plain(http: Request, body: Named) -> Response:
    return PlainTextResponse(f"{http.scope['route'].path} {body.name}")


@router.post("/items/{item}")
async def with_item(item: str, body: Named) -> Response:
    return PlainTextResponse(f"{item} {body.name}")


@router.get("/plain")
async def got(http: Request) -> Response:
    return PlainTextResponse("got")


@pytest.fixture
def client() -> TestClient:
    """seen: the requests that FastAPI handles."""
    app = FastAPI()
    app.include_router(router)
    seen = []

    async def marked(scope, receive, send):
        seen.append(scope)
        await app(scope, receive, send)

    client = TestClient(FastPath(marked, routers=[router]))
    client.seen = seen
    return client


def test_a_plain_post_takes_the_short_way_with_its_route(client):
    assert client.post("/v1/plain", json={"name": "hello"}).text == "/v1/plain hello"
    assert not client.seen


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("POST", "/v1/items/b", "b hello"),
        ("GET", "/v1/plain", "got"),
    ],
)
def test_all_else_goes_through_fastapi(client, method, path, text):
    assert client.request(method, path, json={"name": "hello"}).text == text
    assert len(client.seen) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"), [("PUT", "/v1/plain", 405), ("POST", "/v1/", 404)]
)
def test_what_is_not_there_is_refused_by_fastapi(client, method, path, status):
    assert client.request(method, path).status_code == status
