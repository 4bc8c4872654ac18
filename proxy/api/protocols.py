"""The protocols that this server speaks: their manifests."""

from __future__ import annotations

from proxy.api.anthropic.manifest import ANTHROPIC
from proxy.api.batches.manifest import BATCH
from proxy.api.decisions.manifest import DECISIONS
from proxy.api.kserve.manifest import KSERVE
from proxy.api.manifest import AnswerWords, ErrorForm
from proxy.api.openai.manifest import OPENAI
from proxy.api.plain.manifest import PLAIN
from proxy.api.responses.manifest import RESPONSES
from proxy.api.tokens.manifest import TOKENS

PROTOCOLS = (OPENAI, RESPONSES, DECISIONS, BATCH, ANTHROPIC, PLAIN, TOKENS, KSERVE)
ERROR_FORMS = [each.errors for each in PROTOCOLS if each.errors is not None]
# Prefixes of paths, with a header of their answers that has the request's id, too.
ID_HEADERS = [(each.prefix, each.id_header.encode()) for each in ERROR_FORMS if each.id_header]


def errors_at(path: str) -> ErrorForm | None:
    """The form that the errors of a path have; None: OpenAI's."""
    return next((form for form in ERROR_FORMS if path.startswith(form.prefix)), None)


def words_at(path: str) -> AnswerWords | None:
    """Those of the protocol that has the route."""
    return next((each.words for each in PROTOCOLS if path in each.routes), None)
