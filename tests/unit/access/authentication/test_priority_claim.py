"""Tokens: the claim with the highest priority that a token's requests get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fixtures.issuer import token
from tests.unit.access.authentication.test_tokens import RULES, played, refused


@pytest.mark.parametrize(("claim", "ceiling"), [({}, None), ({"top": 0}, 0), ({"top": -7}, -7)])
def test_a_token_may_have_a_ceiling_of_its_priority(claim, ceiling):
    async def scene(tokens, issuer):
        assert (await tokens.claims(token(**claim).encode())).max_priority == ceiling

    played(scene, rules=replace(RULES, priority_claim="top"))


@pytest.mark.parametrize("wrong", ["5", 1.5, True, [5], 2**31, -(2**31), 10**400])
def test_a_ceiling_that_is_no_integer_of_32_bits_is_refused(wrong):
    async def scene(tokens, issuer):
        assert "'top' is not an integer" in (await refused(tokens, token(top=wrong))).message

    played(scene, rules=replace(RULES, priority_claim="top"))


def test_without_the_setting_no_claim_is_read():
    async def scene(tokens, issuer):
        assert (await tokens.claims(token(top="high").encode())).max_priority is None

    played(scene)
