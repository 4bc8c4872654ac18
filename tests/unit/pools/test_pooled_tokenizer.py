"""The tokenizers of a pool's endpoints as one."""

from __future__ import annotations

import pytest

from proxy.domain.endpoints import EndpointState
from proxy.domain.errors import GuidePending, ModelUnavailable
from tests.doubles import clock
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton
from tests.doubles.tokenizer import ByteTokenizer


class Failing(ByteTokenizer):
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    async def admit(self, request):
        self.calls += 1
        raise self.error


def with_tokenizer(tokenizer: ByteTokenizer) -> ScriptedTriton:
    triton = ScriptedTriton()
    triton.tokenizer = tokenizer
    return triton


def lost() -> Failing:
    return Failing(ModelUnavailable("away"))


@clock.jumps
async def test_one_that_is_lost_is_left_out_and_another_one_asked():
    tritons = {"a:1": with_tokenizer(broken := lost()), "b:1": ScriptedTriton()}
    async with PoolStand(tritons) as stand:
        for _ in range(4):
            assert (await stand.tokenizer.admit(stand.request(text="ab"))).ids[1:] == (97, 98)
        assert broken.calls == 1
        assert stand.states()["a:1"] is EndpointState.NOT_READY


@clock.jumps
async def test_it_gives_up_when_all_are_lost():
    tokenizers = [lost() for _ in range(5)]
    tritons = {f"{n}:1": with_tokenizer(one) for n, one in enumerate(tokenizers)}
    async with PoolStand(tritons) as stand:
        with pytest.raises(ModelUnavailable, match="away"):
            await stand.tokenizer.admit(stand.request())
        assert sum(one.calls for one in tokenizers) == 3


@clock.jumps
async def test_a_guide_that_is_still_compiled_is_no_loss():
    tritons = {"a:1": with_tokenizer(pending := Failing(GuidePending("later")))}
    async with PoolStand(tritons) as stand:
        with pytest.raises(GuidePending):
            await stand.tokenizer.admit(stand.request())
        assert (pending.calls, stand.states()["a:1"]) == (1, EndpointState.READY)
