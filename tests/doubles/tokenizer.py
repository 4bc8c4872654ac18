"""A double of domain.tokenizer's port."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.tokenizer import AdmittedPrompt

DEFAULT_MAX_TOKENS = 50
BOS = 1


class ByteTokenizer:
    """A byte a token, behind BOS where special tokens are asked for; BOS has no bytes."""

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        ids = (*([BOS] if request.add_special_tokens else []), *(request.text or "").encode())
        room = request.model.facts.context_length - len(ids)
        asked, default = request.max_tokens, request.token_cap or DEFAULT_MAX_TOKENS
        if len(ids) > (request.prompt_cap or len(ids)):
            raise InvalidRequest(
                "over limit", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt"
            )
        if room < 1 or ((asked or 0) > room and request.token_cap is None):
            param = "prompt" if room < 1 else "max_tokens"
            raise InvalidRequest("too long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param=param)
        return AdmittedPrompt(ids=ids, max_tokens=min(asked or default, room))

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        return tuple(b"" if token == BOS else bytes([token]) for token in ids)
