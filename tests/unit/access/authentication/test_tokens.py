"""Tokens of an issuer: what is accepted, and how its keys are fetched and followed."""

from __future__ import annotations

import asyncio
import time

import orjson
import pytest

from proxy.access.authentication.signing_keys import (
    DISCOVERY,
    KEEP_S,
    MOST_BYTES,
    MOST_KEYS,
    REFETCH_S,
    REFRESH_S,
    SigningKeys,
    fetch_key_set,
)
from proxy.access.authentication.tokens import Tokens
from proxy.domain.errors import AuthenticationFailed, ErrorCode
from proxy.domain.identity import Scope
from proxy.domain.key_records import KeysUnavailable
from proxy.settings.callers import Identities
from tests.doubles import clock
from tests.fixtures.file_server import FileServer
from tests.fixtures.issuer import AUDIENCE, ISSUER, public_jwk, token

RULES = Identities(
    jwt_issuer=ISSUER,
    jwt_audience=(AUDIENCE, "other"),
    jwt_algorithms=("RS256", "PS256", "ES256", "EdDSA"),
)


class Issuer:
    """Its key set; `fetches` counts, `is_down` fails."""

    def __init__(self, *keys: dict) -> None:
        self.keys = list(keys)
        self.fetches = 0
        self.is_down = False
        self.delay_s = 0.0

    async def fetch(self) -> dict:
        self.fetches += 1
        await asyncio.sleep(self.delay_s)
        if self.is_down:
            raise OSError("down")
        return {"keys": list(self.keys)}


def played(scene, *keys: dict, rules: Identities = RULES, now=time.time) -> Issuer:
    """Runs `scene(tokens, issuer)`; the issuer's keys have been fetched once."""
    issuer = Issuer(*(keys or (public_jwk("RS256", "one"),)))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        signing = SigningKeys(issuer.fetch, clock=loop.time, report=lambda _: None)
        await signing.refresh()
        await scene(Tokens(rules, signing, now=now), issuer)

    clock.run(main())
    return issuer


async def refused(tokens: Tokens, text: str) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as caught:
        await tokens.caller(text.encode())
    return caught.value


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_token_of_each_algorithm_gives_tenant_subject_and_scopes(algorithm):
    async def scene(tokens, issuer):
        text = token(algorithm).encode()
        found = await tokens.caller(text)
        assert (found.tenant, found.key_id) == ("acme", "jwt:robot")
        assert found.scopes == {Scope.CHAT, Scope.MODELS}
        issuer.keys.clear()
        await tokens.keys.refresh()
        assert await tokens.caller(text) is found  # it was verified before

    played(scene, public_jwk(algorithm, "one"))


@pytest.mark.parametrize(
    ("claims", "names", "scopes"),
    [
        ({"scope": ["chat", 7, None, "admin"]}, {}, {Scope.CHAT, Scope.ADMIN}),
        ({"scope": ""}, {}, set()),
        ({"scope": {"chat": True}}, {}, set()),
        ({"scope": None}, {}, set()),
        ({"realm": {"roles": ["tokens"]}}, {"jwt_scope_claim": "realm.roles"}, {Scope.TOKENS}),
    ],
)
def test_scopes_are_words_or_a_list_and_nothing_else(claims, names, scopes):
    async def scene(tokens, issuer):
        found = await tokens.caller(token(**{**claims, "https://a.example/t": "acme"}).encode())
        assert (found.tenant, found.scopes) == ("acme", scopes)

    names = {"jwt_tenant_claim": "https://a.example/t", **names}
    played(scene, rules=RULES.model_copy(update=names))


def test_a_token_expires_after_the_leeway_also_when_it_was_verified_before():
    begun = time.time()
    wall = [begun]

    async def scene(tokens, issuer):
        soon = token(exp=int(begun) - 10)
        assert (await tokens.caller(soon.encode())).tenant == "acme"
        short = token(exp=int(begun) + 2).encode()
        await tokens.caller(short)
        wall[0] = begun + 3  # the verified one is checked again, and is still in the leeway
        await tokens.caller(short)
        error = await refused(tokens, token(exp=int(begun) - 31))
        assert error.code is ErrorCode.EXPIRED_API_KEY

    played(scene, now=lambda: wall[0])


@pytest.mark.parametrize(
    "key",
    [
        public_jwk("RS256", "one", alg="RS512"),
        public_jwk("RS256", "one", use="enc"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "one"},
        {"kty": "RSA", "kid": "one"},
        {"kid": "one"},
        {"kty": 7, "kid": "one"},
        public_jwk("RS256", "one", bits=1024),
    ],
    ids=["algorithm", "use", "symmetric", "incomplete", "empty", "nonsense", "short"],
)
def test_a_key_that_is_not_for_this_is_not_used(key):
    async def scene(tokens, issuer):
        error = await refused(tokens, token())
        assert "not signed with a key of the issuer" in error.message

    played(scene, key)


def test_a_token_without_a_key_id_needs_an_issuer_with_one_key():
    async def one(tokens, issuer):
        assert await tokens.caller(token(key_id=None).encode())

    async def two(tokens, issuer):
        await refused(tokens, token(key_id=None))

    played(one, public_jwk("RS256", None))
    played(one, public_jwk("RS256", "named"))
    played(two, public_jwk("RS256", "a"), public_jwk("RS256", "b", 2))


def test_a_new_key_is_fetched_when_its_first_token_comes_and_unknown_ones_every_ten_seconds():
    async def scene(tokens, issuer):
        await asyncio.sleep(REFETCH_S)
        issuer.keys.append(public_jwk("RS256", "two", 2))
        assert await tokens.caller(token(key_id="two", number=2).encode())
        assert issuer.fetches == 2
        await asyncio.sleep(REFETCH_S)
        issuer.delay_s = 0.1
        for _ in range(5):
            many = [refused(tokens, token("ES256", key_id=f"k{n}")) for n in range(20)]
            await asyncio.gather(*many)
        assert issuer.fetches == 3

    played(scene)


def test_keys_are_followed_in_the_background_and_a_removed_one_ends():
    async def scene(tokens, issuer):
        following = asyncio.create_task(tokens.keys.run())
        issuer.keys[:] = [public_jwk("RS256", "two", 2)]
        await asyncio.sleep(REFRESH_S + 1)
        await refused(tokens, token())
        assert await tokens.caller(token(key_id="two", number=2).encode())
        following.cancel()

    played(scene)


def test_keys_stay_for_an_hour_of_an_outage():
    async def scene(tokens, issuer):
        issuer.is_down = True
        following = asyncio.create_task(tokens.keys.run())
        await asyncio.sleep(KEEP_S - 10)
        assert await tokens.caller(token().encode())
        await asyncio.sleep(20)
        with pytest.raises(KeysUnavailable):
            await tokens.caller(token(jti="another").encode())
        following.cancel()

    played(scene)


@pytest.mark.parametrize("answer", [[], {}, {"keys": {}}, {"keys": [{}] * (MOST_KEYS + 1)}, None])
def test_an_answer_that_is_no_key_set_replaces_nothing(answer):
    async def scene(tokens, issuer):
        async def fetch():
            return answer

        tokens.keys._fetch = fetch
        assert not await tokens.keys.refresh()
        assert await tokens.caller(token().encode())

    played(scene)


@pytest.mark.parametrize("wrong", ["5", 1.5, True, [5], 2**31, -(2**31), 10**400])
def test_a_ceiling_that_is_no_integer_of_32_bits_is_refused(wrong):
    async def scene(tokens, issuer):
        assert "'top' is not an integer" in (await refused(tokens, token(top=wrong))).message

    played(scene, rules=RULES.model_copy(update={"jwt_priority_claim": "top"}))


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
