"""POST /v1/decisions: probabilities of the answers to questions about one input."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Body, Request
from starlette.responses import JSONResponse, Response

from proxy.api.decisions.decision_body import Decision, DecisionBody
from proxy.api.decisions.manifest import PATH
from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader, converted
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.http.own_headers import headers_of
from proxy.api.http.typed_route import typed_router
from proxy.api.openapi.responses import BODY, answers, requests
from proxy.domain.output import Usage
from proxy.domain.record import running_record
from proxy.generation.service import Service
from proxy.models.registry import Registry

DecisionRequest = Annotated[DecisionBody, Body(openapi_examples=requests("decisions"))]


def routes(service: Service, models: Registry, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, tag="decisions")

    @router.post(PATH, responses=answers(Decision, *BODY, 504, generates=True))
    async def decide(http: Request, body: DecisionRequest) -> Response:
        """Answers questions about one input, each with the probabilities of its options."""
        served, record = models.serving(body.model), running_record()
        record.field_names = body.names
        request = await converted(body.to_domain, served, caller_name(http.scope))
        async with CancelOnDisconnect(http.receive):
            chances = await service.decide(request, served.card, body.options())
            headers = headers_of(record, asyncio.get_running_loop().time())
            answer = body.answered(chances, served.name, record.usage or Usage())
            return JSONResponse(answer, headers=headers)
        return Response()  # nobody is there to read it

    return router
