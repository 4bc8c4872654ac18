"""A guide is tried alone before a request is sent with it: one guide of each caller at a time.

A guide may take seconds to compile, and the tokenizer compiles few at once. Without turns one
caller's slow guides would hold up everybody's, and a long prompt, or many choices, would be sent
again and again while a guide is pending.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from triton_openai.proxy.access.caller_turns import CallerTurns
from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.request import Sampling
from triton_openai.proxy.domain.tokenizer import Tokenizer
from triton_openai.proxy.structured.recent import Recent

REMEMBERED_BYTES = 4_000_000  # some 8,000 guides; the tokenizer remembers 4,096


class GuideTrials:
    """One for the application.

    Args:
        epoch: changes when Triton comes back, whose tokenizer then knows no guide any more.
    """

    def __init__(self, tokenizer: Tokenizer, epoch: Callable[[], int] = lambda: 0) -> None:
        self._tokenizer = tokenizer
        self._epoch = epoch
        self._turns = CallerTurns()
        self._passed: Recent[tuple[str, int, int, bytes], bool] = Recent(REMEMBERED_BYTES)

    async def passed(self, request: EngineRequest, caller: str) -> None:
        """Returns at once for a request without a guide, or with one that passed lately.

        Raises:
            InvalidRequest: the guide cannot be used.
            GuidePending: it could not be tried in time.
            RateLimited: too many guides of this caller wait for their trial.
        """
        constraint = request.constraint
        if constraint is None:
            return
        digest = hashlib.sha256(f"{constraint.kind.value}\0{constraint.text}".encode()).digest()
        model = request.model
        key = model.triton_model, model.facts.created, self._epoch(), digest
        if self._passed.get(key):
            return
        async with self._turns.turn(caller):
            if not self._passed.get(key):
                await self._tokenizer.admit(_trial(request))
                self._passed.put(key, True)


def _trial(request: EngineRequest) -> EngineRequest:
    """The guide with the shortest prompt there is."""
    return replace(
        request,
        text="a",
        token_ids=None,
        max_tokens=1,
        sampling=Sampling(),
        prompt_limit=None,
        token_cap=None,
        prompt_cap=None,
        echoes_prompt=False,
    )
