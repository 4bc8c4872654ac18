"""An engine whose streams end in the middle, and that continues them exactly."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ModelUnavailable
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb

PART = re.compile(r"-(continued|resent)\d+$")
CHOICE = re.compile(r"-(\d+)$")
FIRST_ID = 1_000


def lost() -> Exception:
    return ModelUnavailable("away", detail="UNAVAILABLE: the connection was lost")


class DyingEngine:
    """Writes a text byte by byte, the end token last; a token has the id of its place.

    texts: of the choices, by their number. cut: how many deltas each stream gives before it ends
    with what `death` makes, without an error where that is None; None: it lives. A stream that
    continues another one is cut only where `cuts_all`.
    """

    def __init__(
        self,
        *texts: str,
        cut: int | None = None,
        cuts_all: bool = False,
        death: Callable[[], Exception | None] = lost,
        finish: FinishReason = FinishReason.STOP,
        at_once: int = 1,
    ) -> None:
        self.texts = texts
        self.cut = cut
        self.cuts_all = cuts_all
        self.death = death
        self.finish = finish
        self.at_once = at_once
        self.another = True
        self.requests: list[EngineRequest] = []
        self.running = 0

    async def __aenter__(self) -> DyingEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def has_another(self, request: EngineRequest) -> bool:
        return self.another

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        self.requests.append(request)
        is_part = PART.search(request.id) is not None
        cut = self.cut if self.cuts_all or not is_part else None
        self.running += 1
        try:
            for number, delta in enumerate(self._deltas(request)):
                if number == cut:
                    if (error := self.death()) is not None:
                        raise error
                    return
                yield delta
        finally:
            self.running -= 1

    def _deltas(self, request: EngineRequest) -> list[TokenDelta]:
        prompt = (request.text or "").encode()
        tokens = [bytes([one]) for one in prompt] if request.echoes_prompt else []
        ids = [*prompt] if request.echoes_prompt else []
        answer = self._answer(request)
        done = len(request.generated)
        assert request.generated == tuple(range(FIRST_ID, FIRST_ID + done))
        assert not (done and request.echoes_prompt)
        tokens += answer[done:]
        ids += range(FIRST_ID + done, FIRST_ID + len(answer))
        tops = request.sampling.top_log_probs
        log_probs = [] if tops is None else [_log_prob(one, tops) for one in ids]
        found, step = [], self.at_once
        for at in range(0, len(tokens), step):
            found.append(
                TokenDelta(
                    tuple(tokens[at : at + step]),
                    token_ids=tuple(ids[at : at + step]) if request.keeps_ids else (),
                    log_probs=tuple(log_probs[at : at + step]),
                )
            )
        found = found or [TokenDelta(())]
        found[0] = replace(found[0], prompt_tokens=len(prompt), cached_tokens=done and 3)
        found[-1] = replace(found[-1], finish=self.finish)
        return found

    def _answer(self, request: EngineRequest) -> list[bytes]:
        """As many tokens as the request wants at most; the end token where it ended by itself."""
        numbered = CHOICE.search(PART.sub("", request.id))
        text = self.texts[int(numbered[1]) % len(self.texts) if numbered else 0]
        tokens = [bytes([one]) for one in text.encode()]
        return [*tokens, b""] if self.finish is FinishReason.STOP else tokens


def _log_prob(token_id: int, tops: int) -> TokenLogProb:
    value = -0.01 * (token_id % 97)
    return TokenLogProb(
        value,
        tuple(Alternative(b"a%d" % rank, value - rank, token_id) for rank in range(tops)),
        token_id,
    )


class StoppableEngine(DyingEngine):
    """Writes `held` deltas, and no more before `may_end` is set. As our engines do, it ends every
    stream of an id that was stopped, without a finish reason.
    """

    def __init__(self, text: str, *, held: int) -> None:
        super().__init__(text)
        self.held = held
        self.may_end = threading.Event()
        self.stopped: set[str] = set()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        has_ended = False
        try:
            async with aclosing(super().generate(request)) as deltas:
                given = 0
                async for delta in deltas:
                    while not self.may_end.is_set() and given == self.held:
                        await asyncio.sleep(0.01)
                        if request.id in self.stopped:
                            break
                    if has_ended := request.id in self.stopped:
                        return
                    yield delta
                    given += 1
                has_ended = True
        finally:
            if not has_ended:
                self.stopped.add(request.id)
