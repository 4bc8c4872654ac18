"""Doubles of domain.engine's ports."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace

from proxy.domain.engine import EngineRequest, NotReady
from proxy.domain.errors import ModelUnavailable
from proxy.domain.model import CAPABILITIES, LoadedModel, ModelCard, ModelFacts
from proxy.domain.output import (
    Alternative,
    BlockChanges,
    FinishReason,
    TokenDelta,
    TokenLogProb,
)
from proxy.domain.request import TextPrompt, TokenPrompt
from tests.fixtures.logged import LOGGED

FACTS = ModelFacts(
    context_length=128,
    chat_template=(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    ),
    bos_token="<s>",
    eos_token="</s>",
    strips_leading_space=False,
    created=1_700_000_000,
    vocab_size=256,
    engine_model="demo_engine",
    tokenizer_model="demo_tokenizer",
    detokenizer_model="demo_detokenizer",
)
CARD = ModelCard(name="demo", triton_model="demo", facts=FACTS)


def _prompt(request: EngineRequest) -> TextPrompt | TokenPrompt:
    if request.token_ids is not None:
        return TokenPrompt(ids=request.token_ids)
    return TextPrompt(text=request.text or "", pair=request.pair)


def _lettered(letters: str) -> TokenDelta:
    """The labels of a question, each as likely."""
    top = tuple(Alternative(letter.encode(), -math.log(len(letters))) for letter in letters)
    one = TokenLogProb(top[0].log_prob, top)
    return TokenDelta((top[0].token_bytes,), 1, finish=FinishReason.LENGTH, log_probs=(one,))


class ScriptedEngine:
    """Gives the same deltas to every request, and keeps what it saw.

    `then`: for the second request, the third, …; the last of them for all further ones. `error` is
    raised after the deltas; `hangs` waits for ever after them; `pause_s` passes before each delta
    and before the error. `lost`: how many requests, from the first on, lose the engine before their
    first delta.
    """

    def __init__(
        self,
        deltas: Iterable[TokenDelta] = (),
        *,
        error: Exception | None = None,
        hangs: bool = False,
        pause_s: float = 0,
        then: Sequence[Iterable[TokenDelta]] = (),
        lost: int = 0,
    ) -> None:
        self.scripts = [list(deltas), *map(list, then)]
        self.error = error
        self.hangs = hangs
        self.pause_s = pause_s
        self.lost = lost
        self.requests: list[EngineRequest] = []
        self.closed_early = 0
        self.changes: list[BlockChanges | Exception] = []  # of its KV cache, an answer each
        self.positions: list[int] = []  # that such answers were asked for
        self.given = asyncio.Event()
        self.embedding = self.most_embedding = 0  # streams at once

    async def __aenter__(self) -> ScriptedEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def has_another(self, request: EngineRequest) -> bool:
        return False

    async def block_changes(self, engine: str, position: int) -> BlockChanges:
        self.positions.append(position)
        change = self.changes.pop(0) if self.changes else BlockChanges(position, False, (), ())
        if isinstance(change, Exception):
            raise change
        return change

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
        self.requests.append(request)
        if request.embeds is not None:
            yield await self._embedded(request)
            return
        guide = request.constraint
        if guide is not None and guide.field == "questions" and not script[0].log_probs:
            await self._pause()
            yield _lettered(guide.text.strip("[]"))
            return
        LOGGED.see_text(request.text or "")
        LOGGED.see_text(
            b"".join(part for one in script for part in one.token_bytes).decode("utf-8", "replace")
        )
        is_done = False
        try:
            if len(self.requests) <= self.lost:
                raise ModelUnavailable("away", detail="UNAVAILABLE: the connection was lost")
            for delta in script:
                await self._pause()
                yield delta
            self.given.set()
            if self.hangs:
                await asyncio.Event().wait()
            if self.error:
                await self._pause()
                raise self.error.with_traceback(None)  # else each raise makes it longer
            is_done = True
        finally:
            self.closed_early += not is_done

    async def _embedded(self, request: EngineRequest) -> TokenDelta:
        """A token for each byte of the text; the vector says how many. A score is the length of the
        second text.
        """
        self.embedding += 1
        self.most_embedding = max(self.most_embedding, self.embedding)
        try:
            await asyncio.sleep(self.pause_s)
            if self.hangs:
                await asyncio.Event().wait()
            if self.error:
                raise self.error.with_traceback(None)
        finally:
            self.embedding -= 1
        tokens, vectors = 0, b""
        for one in request.batch or (_prompt(request),):
            size = len(one.ids if isinstance(one, TokenPrompt) else one.text.encode())
            numbers = (size, 0.25, *[0.0] * ((request.embeds or 4) - 2))
            if isinstance(one, TextPrompt) and one.pair is not None:
                numbers = (len(one.pair),)
            tokens += size
            vectors += struct.pack(f"<{len(numbers)}f", *numbers)
        return TokenDelta((), tokens, finish=FinishReason.STOP, embedding=vectors)

    async def _pause(self) -> None:
        if self.pause_s:
            await asyncio.sleep(self.pause_s)


class FixedCatalog:
    """One model `demo`, ready unless `reason` says why not."""

    def __init__(
        self,
        reason: str | None = None,
        facts: ModelFacts = FACTS,
        capabilities: frozenset[str] = CAPABILITIES,
    ) -> None:
        self.reason = reason
        self.facts = facts
        self.capabilities = capabilities

    def is_available(self, card: ModelCard) -> bool:
        return True

    def rows(self, card: ModelCard) -> int:
        return card.facts.rows

    async def load(self) -> tuple[LoadedModel, ...]:
        if self.reason is not None:
            raise NotReady(self.reason)
        return (LoadedModel(name="demo", facts=self.facts, capabilities=self.capabilities),)


async def learn(card: ModelCard) -> None:
    """What the program calls for each new card, where nothing is rendered."""


def large(pieces: int, piece_bytes: int) -> list[TokenDelta]:
    """An answer of so many tokens of so many bytes."""
    first = TokenDelta((b"x" * piece_bytes,), prompt_tokens=7)
    more = [TokenDelta((b"x" * piece_bytes,)) for _ in range(pieces - 1)]
    return [first, *more, TokenDelta((b"",), finish=FinishReason.STOP)]


def deltas(text: str, finish: FinishReason | None = FinishReason.STOP) -> list[TokenDelta]:
    """A byte a token, the end token last: the hardest way to cut a text."""
    tokens = [text.encode()[i : i + 1] for i in range(len(text.encode()))]
    cut = [TokenDelta((token,)) for token in tokens]
    if finish is not None:
        cut.append(TokenDelta((b"",), finish=finish))
    if cut:
        cut[0] = replace(cut[0], prompt_tokens=7, cached_tokens=4)
    return cut
