"""Body and answer of the log's level, and the descriptions of its routes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from triton_openai.proxy.api.openapi.operation import BODY, JSON, Content, Operation
from triton_openai.proxy.domain.log_level import LogLevel

TAG = "logs"
LONGEST_S = 604_800  # a week
EXAMPLE = {"level": "debug", "configured": "info", "returns_in_s": 600.0}


class LogLevelBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    level: LogLevel = Field(description="Lines below it are not written.")
    for_s: Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Seconds after which the configured level holds again; null: no end.",
    )


class LogLevelAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    level: LogLevel = Field(description="The one in force.")
    configured: LogLevel = Field(description="`LOG_LEVEL` of the settings.")
    returns_in_s: float | None = Field(
        description="Seconds until the configured level holds again; null: no end was given."
    )


GIVES = {JSON: Content(body=LogLevelAnswer, example=EXAMPLE)}
SHOW = Operation(tag=TAG, gives=GIVES)
SET = Operation(
    tag=TAG,
    takes=LogLevelBody,
    requests={"example": {"level": "debug", "for_s": 600}},
    gives=GIVES,
    errors=BODY,
)
