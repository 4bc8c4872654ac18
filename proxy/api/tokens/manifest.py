"""A model's tokenizer."""

from __future__ import annotations

from proxy.api.manifest import Manifest, Route
from proxy.domain.identity import Scope

TOKENS = Manifest(
    routes={
        "/tokenize": Route(need=Scope.TOKENS),
        "/detokenize": Route(need=Scope.TOKENS),
    }
)
