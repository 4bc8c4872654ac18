"""Bodies of the routes that operate pools."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

PLAIN = r"^[^\x00-\x1f\x7f]+$"  # no control characters; pydantic refuses lone surrogates
MOST_WEIGHTS = 100

Name = Annotated[str, StringConstraints(pattern=PLAIN, max_length=256)]
Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class OperatorBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EndpointBody(OperatorBody):
    address: Name = Field(
        description="`host:port`, as the list of endpoints has it.", examples=["10.0.0.7:8001"]
    )


class LoadBody(OperatorBody):
    pools: Annotated[list[Name], Field(max_length=100)] = Field(
        default=[],
        description="On the endpoints of these pools only; empty: of all pools.",
        examples=[["default"]],
    )


class WeightsBody(OperatorBody):
    weights: Annotated[dict[Name, Weight], Field(min_length=1, max_length=MOST_WEIGHTS)] = Field(
        description="By deployment. One that is not named gets none; one at least is above 0.",
        examples=[{"blue": 95, "green": 5}],
    )

    @field_validator("weights")
    @classmethod
    def _one_is_positive(cls, weights: dict[str, float]) -> dict[str, float]:
        if not any(weights.values()):
            raise ValueError("all weights are 0: one deployment at least must get requests")
        return weights


class SwitchBody(OperatorBody):
    deployment: Name = Field(
        description="The deployment that gets all requests.", examples=["green"]
    )


class RollbackBody(OperatorBody):
    pass
