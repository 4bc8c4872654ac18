"""POST /tokenize and /detokenize: a model's tokenizer, without generating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Request
from starlette.responses import JSONResponse, Response

from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import typed_router
from proxy.api.openai.request_builder import FieldLimits
from proxy.api.openapi.responses import BODY, answers, requests
from proxy.api.tokens.token_bodies import (
    DetokenizeBody,
    Detokenized,
    TokenizeBody,
    Tokens,
)
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.record import running_record
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.choice.answer_text import TextDecoder
from proxy.generation.service import Service
from proxy.models.registry import Registry

TokenizeRequest = Annotated[TokenizeBody, Body(openapi_examples=requests("tokenize"))]


def routes(
    service: Service,
    tokenizer: Tokenizer,
    models: Registry,
    limits: FieldLimits,
    *,
    bodies: BodyReader,
) -> APIRouter:
    router = typed_router(bodies, tag="tokens")

    @router.post("/tokenize", responses=answers(Tokens, *BODY, 422))
    async def tokenize(http: Request, body: TokenizeRequest) -> Response:
        """Text or messages -> token ids and their count. Refuses prompts over the context."""
        limits.check_chat(body.messages, body.tools)
        card = models.asked(body.model)
        generation = body.to_domain(card, caller_name(http.scope))
        request, *_ = await service.engine_requests(generation, card)
        record = running_record()
        record.field_names = lambda: {} if body.messages is None else {"prompt": "messages"}
        ids = (await tokenizer.admit(request)).ids
        record.id, record.model = request.id, request.model.name
        record.prompt_tokens = len(ids)
        texts = None
        if body.return_token_strs:
            texts = _token_texts(await tokenizer.token_bytes(request.model, ids))
        most = request.model.facts.context_length
        found = {"count": len(ids), "max_model_len": most, "tokens": ids, "token_strs": texts}
        return JSONResponse(found)

    @router.post("/detokenize", responses=answers(Detokenized, *BODY))
    async def detokenize(body: DetokenizeBody) -> Response:
        """Token ids -> text, without special tokens."""
        card = models.asked(body.model)
        models.check_available(card)
        record = running_record()
        record.model, record.prompt_tokens = card.name, len(body.tokens)
        _check_ids(body.tokens, card)
        parts = await tokenizer.token_bytes(card, body.tokens) if body.tokens else ()
        return JSONResponse({"prompt": _text(parts, card)})

    return router


def _check_ids(ids: Sequence[int], card: ModelCard) -> None:
    size, most = card.facts.vocab_size, card.facts.context_length
    if len(ids) > most:
        raise InvalidRequest(
            f"Invalid 'tokens': {len(ids)} are more than the model's context of {most} holds",
            param="tokens",
        )
    for position, token in enumerate(ids):
        if token >= size:
            raise InvalidRequest(
                f"Invalid value for 'tokens[{position}]': {token} is outside the vocabulary of "
                f"{size} tokens",
                param=f"tokens[{position}]",
            )


def _text(parts: Sequence[bytes], card: ModelCard) -> str:
    """The text that the tokenizer itself would decode."""
    decoder = TextDecoder(strips_leading_space=card.facts.strips_leading_space)
    return decoder.push(b"".join(parts)) + decoder.flush()


def _token_texts(parts: Sequence[bytes]) -> list[str]:
    """Each token's text; a token that is a part of a character becomes U+FFFD."""
    return [part.decode(errors="replace") for part in parts]
