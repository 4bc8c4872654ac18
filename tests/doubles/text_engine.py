"""An engine of others that takes text only, and whose streams end in the middle."""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.engine import EngineRequest
from proxy.domain.output import FinishReason, TokenDelta
from proxy.triton.local_tokenizer import local_tokenizer
from tests.doubles.dying_engine import DyingEngine
from tests.fixtures.scripted import WEIGHTS

END = 2_045


class TextEngine(DyingEngine):
    """A text shows when its character is whole, and that of several tokens with the last one, as
    vLLM's does. spells: each token is a byte, so that few beginnings are what a text has.
    """

    spells = False

    def ids(self, text: str) -> list[int]:
        tokenizer = local_tokenizer(str(WEIGHTS))
        if not self.spells:
            return tokenizer._ids(text)
        known = {tokenizer.token_bytes(one): one for one in range(END)}
        return [known[bytes([one])] for one in text.encode()]

    def _deltas(self, request: EngineRequest) -> list[TokenDelta]:
        assert not request.echoes_prompt
        said = request.said or ""
        answer = b"".join(self._answer(request)).decode()
        assert answer.startswith(said)
        ids = [*self.ids(answer), END]
        if request.keeps_ids:
            assert (request.said_tokens, request.generated) == (
                len(request.generated),
                tuple(ids[: len(request.generated)]),
            )
            ids = ids[len(request.generated) :]
        else:
            assert not request.generated
            ids = [*self.ids(answer.removeprefix(said)), END]
        found, pending, tokenizer = [], b"", local_tokenizer(str(WEIGHTS))
        for at in range(0, len(ids), self.at_once):
            new = ids[at : at + self.at_once]
            pending += b"".join(tokenizer.token_bytes(one) for one in new)
            text = pending.decode(errors="ignore").encode()
            pending = pending[len(text) :]
            shown = (*[b""] * (len(new) - 1), text)
            found.append(TokenDelta(shown, token_ids=tuple(new) if request.keeps_ids else ()))
        found[0] = replace(found[0], prompt_tokens=len(request.text or ""))
        found[-1] = replace(found[-1], finish=FinishReason.STOP)
        return found
