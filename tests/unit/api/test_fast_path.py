from __future__ import annotations

import pytest
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from triton_openai.proxy.api.fast_path import FastPath

router = APIRouter(prefix="/v1")


@router.post("/plain")
async def plain(http: Request) -> Response:
    return PlainTextResponse(f"{http.scope['route'].path} {(await http.body()).decode()}")


@router.post("/query")
async def query(http: Request, name: str) -> Response:
    return PlainTextResponse(name)


@router.post("/items/{item}")
async def with_item(item: str) -> Response:
    return PlainTextResponse(item)


@router.post("/json")
async def serialised(http: Request) -> dict[str, int]:
    return {"a": 1}


@router.post("/thread")
def in_a_thread(http: Request) -> Response:
    return PlainTextResponse("thread")


@router.get("/plain")
async def got(http: Request) -> Response:
    return PlainTextResponse("got")


@pytest.fixture
def client() -> TestClient:
    """FastAPI's own way is marked by a header."""
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
    assert client.post("/v1/plain", content="hello").text == "/v1/plain hello"
    assert not client.seen


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("POST", "/v1/query?name=a", "a"),
        ("POST", "/v1/items/b", "b"),
        ("POST", "/v1/json", '{"a":1}'),
        ("POST", "/v1/thread", "thread"),
        ("GET", "/v1/plain", "got"),
    ],
)
def test_all_else_goes_through_fastapi(client, method, path, text):
    assert client.request(method, path).text == text
    assert len(client.seen) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"), [("PUT", "/v1/plain", 405), ("POST", "/v1/", 404)]
)
def test_what_is_not_there_is_refused_by_fastapi(client, method, path, status):
    assert client.request(method, path).status_code == status
