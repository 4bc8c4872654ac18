"""An engine of others that takes text only, and whose streams end in the middle."""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.engine import EngineRequest
from proxy.domain.output import FinishReason, TokenDelta
from tests.doubles.dying_engine import FIRST_ID, DyingEngine


class TextEngine(DyingEngine):
    """Each token is a byte, which shows when its character is whole, as vLLM's text does."""

    def _deltas(self, request: EngineRequest) -> list[TokenDelta]:
        assert not request.echoes_prompt
        said = (request.said or "").encode()
        answer = self._answer(request)
        done = len(said)
        assert b"".join(answer).startswith(said)
        assert request.said_tokens == done
        assert request.generated in ((), tuple(range(FIRST_ID, FIRST_ID + done)))
        found, pending = [], b""
        for at in range(done, len(answer)):
            pending += answer[at]
            text = b"" if is_partial(pending) else pending
            pending = pending[len(text) :]
            ids = (FIRST_ID + at,) if request.keeps_ids else ()
            found.append(TokenDelta((text,), token_ids=ids))
        found[0] = replace(found[0], prompt_tokens=len(request.text or ""))
        found[-1] = replace(found[-1], finish=FinishReason.STOP)
        return found


def is_partial(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False
