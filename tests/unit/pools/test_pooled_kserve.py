"""Any model of any endpoint, over KServe's protocol."""

from __future__ import annotations

import pytest

from proxy.domain.errors import ModelUnavailable, UnknownModel
from proxy.domain.kserve import KserveRequest
from proxy.pools.pooled_kserve import PooledKserve
from tests.doubles import clock
from tests.doubles.kserve import EchoModels
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton, checked

REQUEST = KserveRequest(id="", parameters={}, inputs=(), outputs=())


class KserveTriton(ScriptedTriton):
    """Has other models beside the ensembles."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.kserve = EchoModels(*names)

    async def ready_models(self) -> frozenset[str]:
        return await super().ready_models() | {f"{name}:1" for name in self.kserve.names}


@clock.jumps
async def test_endpoints_that_have_the_model_take_turns_until_all_are_gone() -> None:
    tritons = {"a:1": KserveTriton("add"), "b:1": KserveTriton("add"), "c:1": KserveTriton()}
    async with PoolStand(tritons) as stand:
        await checked()
        kserve = PooledKserve(stand.pools)
        for _ in range(6):
            await kserve.infer("add", "", REQUEST, timeout_s=9)
        assert [len(one.kserve.requests) for one in tritons.values()] == [3, 3, 0]
        assert await kserve.is_server_ready()
        assert await kserve.is_model_ready("add", "")
        assert not await kserve.is_model_ready("nothing", "")
        with pytest.raises(UnknownModel):
            await kserve.infer("nothing", "", REQUEST, timeout_s=9)
        for triton in tritons.values():
            triton.reason = "it is gone"
        await checked(2)
        assert not await kserve.is_server_ready()
        with pytest.raises(ModelUnavailable):
            await kserve.infer("add", "", REQUEST, timeout_s=9)
