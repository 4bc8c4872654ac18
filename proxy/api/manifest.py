"""What the rest of the server must know of a protocol, as data. `protocols` lists them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pydantic import BaseModel

from proxy.api.http.stream_format import SSE, Payload, StreamFormat
from proxy.domain.identity import Scope


class Open(Enum):
    """What needs no scope. ANYBODY: no key either. CALLER: any key or token that is accepted."""

    ANYBODY = "anybody"
    CALLER = "caller"


Need = Scope | Open
COUNTED = (Scope.TOKENS, Scope.MODELS, Scope.KSERVE, Scope.BATCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    need: Need
    # `gen_ai.operation.name` of its spans.
    operation: str | None = None
    # Journal, log and spans may have its requests and answers. Callers refuse with `store: false`.
    is_recorded: bool = False
    # Reads or ends what there is, so that a counted request may run at any time.
    only_reads: bool = False
    # Of its streams.
    framing: StreamFormat = SSE

    @property
    def counts(self) -> bool:
        """Whether its requests generate nothing, so that the application counts them in the limits
        on requests. Generations are counted by the service, which knows what they cost.
        """
        return self.only_reads or self.need in COUNTED


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorForm:
    """The form of errors at all paths with the prefix, also at paths without a route."""

    prefix: str
    body: Callable[[Payload], Payload]  # of the same error in OpenAI's form
    model: type[BaseModel]
    id_header: str | None = None  # of every answer there: the same as x-request-id


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWords:
    """Names of the fields that say what an answer is, in one body or in its events' data."""

    texts: frozenset[str]  # of choices, thoughts and calls
    finish: str
    prompt_tokens: frozenset[str]  # of `usage`, where they add up
    output_tokens: str
    whole: str | None = None  # of the events that have the whole answer as it is then


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    # By path. A path that ends with / stands for all below it that are not listed.
    routes: Mapping[str, Route]
    errors: ErrorForm | None = None  # None: OpenAI's form
    # For the OpenAPI document: models of events, and the kinds of rows in parameters.md that
    # describe the fields of a schema.
    events: Sequence[type[BaseModel]] = ()
    described: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # For `replay`, which compares answers; None where no route is recorded.
    words: AnswerWords | None = None
