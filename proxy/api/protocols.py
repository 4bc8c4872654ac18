"""The protocols that this server speaks: their manifests."""

from __future__ import annotations

from proxy.api.anthropic.manifest import ANTHROPIC
from proxy.api.kserve.manifest import KSERVE
from proxy.api.manifest import AnswerWords, Manifest
from proxy.api.openai.manifest import OPENAI
from proxy.api.plain.manifest import PLAIN
from proxy.api.responses.manifest import RESPONSES
from proxy.api.tokens.manifest import TOKENS

PROTOCOLS = (OPENAI, RESPONSES, ANTHROPIC, PLAIN, TOKENS, KSERVE)
_PREFIXES = {each.prefix: each for each in PROTOCOLS if each.prefix is not None}


def errors_at(path: str) -> Manifest:
    """The protocol whose form the errors of a path have: OpenAI's, unless one claims it."""
    found = (each for prefix, each in _PREFIXES.items() if path.startswith(prefix))
    return next(found, OPENAI)


def words_at(path: str) -> AnswerWords | None:
    """Those of the protocol that has the route."""
    return next((each.words for each in PROTOCOLS if path in each.routes), None)
