"""Legacy: the end of a stream of NVIDIA's C++ backend. Called by `client`."""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.engine import EngineRequest
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request_limits import smaller
from proxy.triton import codec

NOTHING = TokenDelta(())


class MissingFinishReason:
    """Infers the finish reason of one stream of NVIDIA's C++ backend, which has no such output.

    That backend ends a stream for two reasons only. An answer that is shorter than it may be, or
    that ends with an end token, was ended by that token; any other was cut off by its length.
    `push` adds the reason to the final message.
    """

    def __init__(self, request: EngineRequest) -> None:
        facts, sampling = request.model.facts, request.sampling
        default = smaller(facts.default_max_tokens, request.token_cap)
        self._max_tokens = request.max_tokens or default
        self._context_length = facts.context_length
        self._ends = {
            *(sampling.stop_token_ids or ()),
            *(() if sampling.ignore_eos else facts.end_ids),
        }
        self._prompt_tokens = 0
        self._tokens = 0
        self._last: int | None = None

    def push(self, message: codec.StreamMessage) -> codec.StreamMessage:
        delta = message.delta or NOTHING
        if delta.prompt_tokens is not None:
            self._prompt_tokens = delta.prompt_tokens
        self._tokens += len(delta.token_bytes)
        if delta.token_ids:
            self._last = delta.token_ids[-1]
        if not message.is_final:
            return message
        return codec.StreamMessage(replace(delta, finish=self._reason()), is_final=True)

    def _reason(self) -> FinishReason:
        room = self._context_length - self._prompt_tokens
        limit = min(room, self._max_tokens or room)
        is_cut = self._tokens >= limit and self._last not in self._ends
        return FinishReason.LENGTH if is_cut else FinishReason.STOP
