"""No browser guesses the type of an answer, and no cache keeps one that is a caller's."""

from __future__ import annotations

import pytest

from tests.api.responses.formats import RESPONSES, stream, whole
from tests.api.responses.test_input import CATALOG
from tests.doubles.engine import ScriptedEngine, deltas

PAGES = ("/docs", "/redoc", "/openapi.json", "/docs/swagger-start.js", "/page/app.js", "/")


@pytest.mark.parametrize(
    "path",
    [*PAGES, "/v1/models", "/health", "/health/ready", "/version", "/metrics", "/nothing",
     "/v1/chat/completions", "/admin/v1/keys", f"{RESPONSES}/resp_none"],
)  # fmt: skip
def test_each_answer_says_that_its_type_is_not_to_be_guessed(serve, path):
    answer = serve(ScriptedEngine()).get(path)
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    (cached,) = answer.headers.get_list("cache-control")
    assert path in PAGES or cached == "no-store"


def test_a_kept_response_is_kept_by_the_server_alone(serve):
    client = serve(ScriptedEngine(deltas("ok"), then=[deltas("ok")]), CATALOG)
    made = whole(client)
    url = f"{RESPONSES}/{made['id']}"
    for path in (url, f"{url}/input_items"):
        assert client.get(path).headers["cache-control"] == "no-store"
    assert client.delete(url).headers["cache-control"] == "no-store"
    assert stream(client)
