"""Our own ensembles, see tensors and codec."""

from __future__ import annotations

from functools import partial

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ProxyError
from proxy.triton import codec, tensors
from proxy.triton.cpp_backend import MissingFinishReason
from proxy.triton.dialects.dialect import Declared, Read


class Own:
    """See Dialect. The catalog recognizes them by the parameter `contract_version`."""

    def capabilities(self, declared: Declared) -> None:
        return None

    def notes(self, declared: Declared) -> list[str]:
        return []

    encode = staticmethod(codec.encode)
    stop = staticmethod(codec.encode_stop)

    def reader(self, request: EngineRequest, prompt_tokens: int | None) -> Read:
        model = request.model
        mark = codec.receipt_mark(request.id) if tensors.has_receipts(model) else None
        read = partial(codec.decode, mark=mark)
        if not tensors.is_cpp(model.facts):
            return read
        finish = MissingFinishReason(request)
        return lambda response: finish.push(read(response))

    def error(self, message: str, request: EngineRequest) -> ProxyError | None:
        return None
