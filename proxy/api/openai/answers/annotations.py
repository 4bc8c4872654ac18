"""Makes the annotations that `nvext.annotations` asks for, with Dynamo's names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from proxy.api.answers.stream_format import Annotation
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.service import Service


class Annotator:
    """Describes prompts before anything is generated."""

    def __init__(self, service: Service, tokenizer: Tokenizer) -> None:
        self._service = service
        self._tokenizer = tokenizer

    async def of_prompt(
        self, request: GenerationRequest, card: ModelCard, names: Collection[str]
    ) -> list[Annotation]:
        """The annotations with these names; for several prompts each value is a list.

        Raises what a generation of the request would raise.
        """
        if not names:
            return []
        found = []
        if "request_id" in names:
            found.append(Annotation("request_id", request.id))
        prompts = await self._service.engine_requests(request, card)
        if "formatted_prompt" in names:
            found.append(Annotation("formatted_prompt", _unwrapped([one.text for one in prompts])))
        if "token_ids" in names:
            ids = [list((await self._tokenizer.admit(one)).ids) for one in prompts]
            found.append(Annotation("token_ids", _unwrapped(ids)))
        return found


def _unwrapped(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
