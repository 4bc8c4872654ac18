"""A request that generates nothing, counted in its caller's limits on requests.

Made by `request_limiter`, entered by the middleware of the rate-limit headers.
"""

from __future__ import annotations

from typing_extensions import Self

from proxy.access.limits import refusals
from proxy.access.limits.caller_meters import NOTHING, Amounts
from proxy.access.limits.reservation import Means
from proxy.access.limits.standing import Standings
from proxy.domain.identity import Caller
from proxy.state.meters import Grant, Refusal

ONE_RUNNING: Amounts = (1, 1, 0, 0, 0, 0, 0)
ONE_DONE: Amounts = (1, 0, 0, 0, 0, 0, 0)


class CountedRequest:
    """An async context manager, for as long as the request runs.

    Limits of a model do not count it: some of these routes name none.
    """

    def __init__(self, means: Means, caller: Caller, standings: Standings) -> None:
        self._means = means
        self._caller = caller
        self._standings = standings
        self._grant: Grant | None = None
        self._used = ONE_DONE

    async def __aenter__(self) -> Self:
        """
        Raises:
            RateLimited: a limit on requests is reached.
            LimitsUnavailable: nobody can say whether one is.
        """
        self._meters = await self._means.callers.meters(self._caller, "")
        if self._meters.meters:
            await self._reserve()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Waits for nothing: the request may have been cancelled."""
        if isinstance(error, Exception):
            self.give_back()
        if self._grant is not None:
            self._means.ledger.settle(self._grant, self._meters.amounts(self._used))

    def give_back(self) -> None:
        """The request was refused for another reason, and does not count unless it was costly."""
        if not self._standings.is_costly:
            self._used = NOTHING

    async def _reserve(self) -> None:
        amounts = self._meters.amounts(ONE_RUNNING)
        result = await self._means.reserve(self._meters.meters, amounts)
        self._standings.set(self._meters, result.look)
        if isinstance(result, Refusal):
            self._means.on_refusal(result.meter.name)
            raise refusals.error_of(result, amounts[result.at])
        self._grant, self._standings.is_counted = result, True
