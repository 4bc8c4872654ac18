"""What clients of NVIDIA Dynamo's front ask for beside OpenAI's API."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from proxy.registry import Registry


def routes(registry: Registry) -> APIRouter:
    router = APIRouter(prefix="/dynamo/alpha")

    @router.get("/list-models")
    async def list_models() -> Response:
        """Names by what they can do, in the shape of Dynamo's own handler (lib/llm, http)."""
        cards = registry.cards()
        can_chat = [card.name for card in cards if card.facts.chat_template is not None]
        return JSONResponse(
            {
                "chat_completion_models": can_chat,
                "completion_models": [card.name for card in cards],
            }
        )

    return router
