"""POST /tokenize and /detokenize: a model's tokenizer, asked without generating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.answers.answer import in_words
from triton_openai.proxy.api.bodies.body import BodyReader
from triton_openai.proxy.api.bodies.caller import caller_of
from triton_openai.proxy.api.openai.requests.limits import Limits
from triton_openai.proxy.api.tokens import documented
from triton_openai.proxy.api.tokens.bodies import DetokenizeBody, TokenizeBody
from triton_openai.proxy.domain.errors import InvalidRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.tokenizer import Tokenizer
from triton_openai.proxy.generation.choice.text_decoder import TextDecoder
from triton_openai.proxy.generation.service import Service
from triton_openai.proxy.models.registry import Registry
from triton_openai.proxy.telemetry import line


def routes(
    service: Service,
    tokenizer: Tokenizer,
    registry: Registry,
    sizes: Limits,
    *,
    bodies: BodyReader,
) -> APIRouter:
    router = APIRouter()

    @router.post("/tokenize", openapi_extra=documented.TOKENIZE.extra)
    async def tokenize(http: Request) -> Response:
        """Text or messages -> token ids and their count. What cannot be served is refused."""
        asked = await bodies.read(http, TokenizeBody)
        sizes.check_chat(asked.messages, asked.tools)
        generation = asked.to_domain(registry.default().name)
        request = await service.engine_request(replace(generation, caller=caller_of(http.scope)))
        with in_words({"prompt": "prompt" if asked.messages is None else "messages"}):
            ids = (await tokenizer.admit(request)).ids
        line.add(id=request.id, model=request.model.name, prompt_tokens=len(ids))
        texts = None
        if asked.return_token_strs:
            texts = _token_texts(await tokenizer.token_bytes(request.model, ids))
        most = request.model.facts.context_length
        found = {"count": len(ids), "max_model_len": most, "tokens": ids, "token_strs": texts}
        return JSONResponse(found)

    @router.post("/detokenize", openapi_extra=documented.DETOKENIZE.extra)
    async def detokenize(http: Request) -> Response:
        """Token ids -> text, without special tokens."""
        asked = await bodies.read(http, DetokenizeBody)
        card = registry.card(registry.default().name if asked.model is None else asked.model)
        line.add(model=card.name, prompt_tokens=len(asked.tokens))
        _check_ids(asked.tokens, card)
        parts = await tokenizer.token_bytes(card, asked.tokens) if asked.tokens else ()
        return JSONResponse({"prompt": _text(parts, card)})

    return router


def _check_ids(ids: Sequence[int], card: ModelCard) -> None:
    size, most = card.facts.vocab_size, card.facts.context_length
    if len(ids) > most:
        raise InvalidRequest(
            f"Invalid 'tokens': {len(ids)} are more than the model's context of {most} holds",
            code="invalid_parameter",
            param="tokens",
        )
    for position, token in enumerate(ids):
        if token >= size:
            raise InvalidRequest(
                f"Invalid value for 'tokens[{position}]': {token} is outside the vocabulary of "
                f"{size} tokens",
                code="invalid_parameter",
                param=f"tokens[{position}]",
            )


def _text(parts: Sequence[bytes], card: ModelCard) -> str:
    """As the tokenizer itself would decode them."""
    decoder = TextDecoder(strips_leading_space=card.facts.strips_leading_space)
    return decoder.push(b"".join(parts)) + decoder.flush()


def _token_texts(parts: Sequence[bytes]) -> list[str]:
    """A token may be a part of a character, which then has no text of its own."""
    return [part.decode(errors="replace") for part in parts]
