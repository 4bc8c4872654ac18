"""Routes of NVIDIA Dynamo's frontend that are not in OpenAI's API."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from proxy.api.openapi.responses import answers
from proxy.models.callers_models import CallersModels


class ModelNames(BaseModel):
    """Names of models, grouped by what the models can do."""

    model_config = ConfigDict(extra="forbid")

    chat_completion_models: list[str] = Field(examples=[["demo"]])
    completion_models: list[str] = Field(examples=[["demo"]])


def routes(models: CallersModels) -> APIRouter:
    router = APIRouter(prefix="/dynamo/alpha")

    @router.get("/list-models", tags=["dynamo"], responses=answers(ModelNames))
    async def list_models() -> Response:
        """Names of models, grouped by what the models can do, as Dynamo's frontend lists them."""
        cards = models.listed()
        can_chat = [card.name for card in cards if card.facts.chat_template is not None]
        return JSONResponse(
            {
                "chat_completion_models": can_chat,
                "completion_models": [card.name for card in cards],
            }
        )

    return router
