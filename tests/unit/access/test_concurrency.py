"""Concurrency: a permit lives as long as its stream."""

from __future__ import annotations

import asyncio

import pytest

from proxy.access.concurrency import Concurrency
from proxy.domain.errors import RateLimited


def run(main) -> None:
    asyncio.run(main())


def test_one_more_than_the_limit_is_refused_until_one_ends():
    async def main():
        limit = Concurrency(2)
        async with limit.permit():
            async with limit.permit():
                with pytest.raises(RateLimited, match="at most 2 requests"):
                    async with limit.permit():
                        pass
                assert limit.running == 2
            async with limit.permit():
                pass
        assert limit.running == 0

    run(main)


def test_a_permit_comes_back_when_its_request_fails():
    async def main():
        limit = Concurrency(1)
        with pytest.raises(ValueError, match="broken"):
            async with limit.permit():
                raise ValueError("broken")
        assert limit.running == 0

    run(main)


def test_without_a_limit_nobody_is_refused():
    async def main():
        limit = Concurrency(None)
        async with limit.permit(), limit.permit(), limit.permit():
            assert limit.running == 3

    run(main)
