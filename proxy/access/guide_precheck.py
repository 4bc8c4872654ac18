"""Sends a request's guide to the tokenizer alone, before the request itself is sent.

A guide may take seconds to compile, and the tokenizer compiles few at once. Without this check one
caller's slow guides would delay everybody's, and a long prompt, or one with many choices, would be
sent again and again while its guide compiles.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakValueDictionary

from proxy.access.per_caller_lock import PerCallerLock
from proxy.domain.engine import EngineRequest
from proxy.domain.request import Sampling
from proxy.domain.tokenizer import Tokenizer
from proxy.language.structured.recent import Recent

Key = tuple[str, int, int, bytes]  # a model, its build, the epoch, a guide
REMEMBERED_BYTES = 4_000_000  # about 8,000 guides; the tokenizer remembers 4,096


class GuidePrecheck:
    """Checks one guide of each tenant at a time, and remembers those that passed.

    Args:
        epoch: a number that changes when Triton restarts: its tokenizer has then forgotten all
            guides, so they must be checked again.
    """

    def __init__(self, tokenizer: Tokenizer, epoch: Callable[[], int] = lambda: 0) -> None:
        self._tokenizer = tokenizer
        self._epoch = epoch
        self._lock = PerCallerLock()
        self._checked: WeakValueDictionary[tuple[str, Key], asyncio.Lock] = WeakValueDictionary()
        self._passed: Recent[Key, bool] = Recent(REMEMBERED_BYTES)

    async def check(self, request: EngineRequest, caller: str) -> None:
        """Returns at once if the request has no guide, or one that passed recently.

        Raises:
            InvalidRequest: the guide cannot be used.
            GuidePending: the guide is still being compiled.
            RateLimited: too many guides of this caller are waiting for their check.
            ServiceError: the tokenizer cannot be reached or fails.
        """
        constraint = request.constraint
        if constraint is None:
            return
        digest = hashlib.sha256(f"{constraint.kind.value}\0{constraint.text}".encode()).digest()
        model = request.model
        key = model.triton_model, model.facts.created, self._epoch(), digest
        if self._passed.get(key):
            return
        equal = self._checked.setdefault((caller, key), asyncio.Lock())
        async with equal:  # the choices of one request count as one check
            if not self._passed.get(key):
                async with self._lock.hold(caller):
                    await self._tokenizer.admit(_guide_alone(request))
                self._passed.keep(key, True)


def _guide_alone(request: EngineRequest) -> EngineRequest:
    """The request's guide, with a prompt of one letter."""
    return replace(
        request,
        text="a",
        token_ids=None,
        generated=(),
        max_tokens=1,
        sampling=Sampling(),
        prompt_limit=None,
        token_cap=None,
        prompt_cap=None,
        echoes_prompt=False,
    )
