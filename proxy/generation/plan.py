"""Everything that is decided about a request before any of it is sent. Made by `planner`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest
from proxy.generation.answer_format import AnswerFormat
from proxy.language.syntax import parsers
from proxy.language.syntax.output_parser import OutputParser


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the choices of one request share.

    request: the caller's, within the operator's limits and with the server's tools.
    engine_requests: what the engine is sent for the first choice of each prompt.
    prompt_text: of a chat, as the parser of its answer reads it; empty for other prompts.
    special_tokens: those whose text belongs to the answer, by id.
    """

    request: GenerationRequest
    card: ModelCard
    format: AnswerFormat
    engine_requests: tuple[EngineRequest, ...]
    prompt_text: str
    special_tokens: Mapping[int, bytes]

    @property
    def is_guided(self) -> bool:
        return self.engine_requests[0].constraint is not None

    def part(self, index: int) -> Part:
        """The plan of one choice; those of the first prompt come first."""
        at, candidate = divmod(index, self.request.candidates)
        request, engine_request = self.request.part(index), self.engine_requests[at]
        if candidate:
            sampling = request.sampling.with_defaults(self.card.sampling)
            engine_request = replace(engine_request, id=request.id, sampling=sampling)
        return Part(
            plan=self,
            index=index,
            request=request,
            engine_request=engine_request,
            counts_prompt=not candidate,
        )

    def only_part(self, index: int) -> Part:
        """The plan of a request with one choice, which stands for choice `index` of another."""
        return Part(
            plan=self,
            index=index,
            request=self.request,
            engine_request=self.engine_requests[0],
            counts_prompt=True,
        )

    def new_parser(self) -> OutputParser | None:
        """For one answer; None: all of it is text."""
        return parsers.parser_of(self.request, self.card, self.prompt_text, self.format.tool_family)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one choice has of its own. `counts_prompt`: its usage includes the prompt."""

    plan: Plan
    index: int
    request: GenerationRequest
    engine_request: EngineRequest
    counts_prompt: bool
