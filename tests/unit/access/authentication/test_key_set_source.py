"""fetch_key_set: an issuer's keys over HTTP, and what is not taken for them."""

from __future__ import annotations

import orjson
import pytest

from proxy.access.authentication.signing_keys import DISCOVERY, MOST_BYTES, fetch_key_set
from tests.fixtures.file_server import FileServer

KEYS = {"keys": [{"kid": "one"}]}


@pytest.mark.anyio
async def test_keys_are_where_the_discovery_document_says():
    answers = {"/keys": orjson.dumps(KEYS)}
    with FileServer(answers) as server:
        issuer = server.url("")
        found = {"issuer": issuer, "jwks_uri": server.url("/keys")}
        answers[DISCOVERY] = orjson.dumps(found)
        assert await fetch_key_set(issuer, None) == KEYS
        assert server.asked == [DISCOVERY, "/keys"]
        assert await fetch_key_set("https://elsewhere.example", server.url("/keys")) == KEYS


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"issuer": "https://other.example", "jwks_uri": "https://a.example"}, "another issuer"),
        ({"issuer": None}, "is not https"),
        ({"issuer": None, "jwks_uri": "http://169.254.169.254/keys"}, "is not https"),
        ({"issuer": None, "jwks_uri": "file:///etc/passwd"}, "is not https"),
        ({"issuer": None, "jwks_uri": "http://127.0.0.1.a.example/keys"}, "is not https"),
    ],
)
async def test_a_discovery_document_that_leads_elsewhere(document, says):
    answers = {}
    with FileServer(answers) as server:
        issuer = server.url("")
        named = {**document, "issuer": document["issuer"] or issuer}
        answers[DISCOVERY] = orjson.dumps(named)
        with pytest.raises(ValueError, match=says):
            await fetch_key_set(issuer, None)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"<html>", "unexpected"),
        (b"[]", "not a JSON object"),
        (b" " * (MOST_BYTES + 1), "more than"),
        ("/elsewhere", "302"),
    ],
)
async def test_an_answer_that_is_no_key_set(answer, says):
    with FileServer({"/keys": answer, "/elsewhere": orjson.dumps(KEYS)}) as server:
        with pytest.raises(Exception, match=says):
            await fetch_key_set("https://a.example", server.url("/keys"))
        assert server.asked == ["/keys"]
