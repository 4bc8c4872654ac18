"""Bodies and answers of the routes that operate pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator

from proxy.api.http.typed_route import PLAIN, StrictBody
from proxy.api.openapi.responses import Answer, ListAnswer
from proxy.domain.endpoints import (
    Decisions,
    EndpointResult,
    EndpointState,
    EndpointStatus,
)
from proxy.models.deployments import DeploymentPlan

Plans = Mapping[str, DeploymentPlan]  # by public model, in the order of models.yaml
MOST_WEIGHTS = 100

Name = Annotated[str, StringConstraints(pattern=PLAIN, max_length=256)]
Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class EndpointBody(StrictBody):
    address: Name = Field(
        description="`host:port`, as the list of endpoints has it.", examples=["10.0.0.7:8001"]
    )


class LoadBody(StrictBody):
    pools: Annotated[list[Name], Field(max_length=100)] = Field(
        default=[],
        description="On the endpoints of these pools only; empty: of all pools.",
        examples=[["default"]],
    )


class WeightsBody(StrictBody):
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


class SwitchBody(StrictBody):
    deployment: Name = Field(
        description="The deployment that gets all requests.", examples=["green"]
    )


class RollbackBody(StrictBody):
    pass


class LoadAnswer(Answer):
    """What the endpoint's engines report, over all of its models; null: not reported."""

    waiting: int | None = Field(description="Requests without a row.", examples=[0])
    running: int | None = Field(description="Requests with a row.", examples=[12])
    kv_in_use: float | None = Field(description="Share of the KV cache, 0 to 1.", examples=[0.31])
    is_stale: bool = Field(description="Whether it is older than three seconds.")


class EndpointAnswer(Answer):
    pool: str = Field(examples=["default"])
    address: str = Field(examples=["10.0.0.7:8001"])
    state: EndpointState = Field(examples=["ready"])
    reason: str | None = Field(description="Why it, or a model there, is not ready.")
    is_drained: bool = Field(description="Whether an operator has drained it.")
    models: list[str] = Field(
        description="Triton's names of the models it has loaded.", examples=[["demo"]]
    )
    streams: int = Field(description="Of this proxy, sent and not ended.", examples=[12])
    outstanding_tokens: int = Field(
        description="Of this proxy: what these streams may cost.", examples=[5120]
    )
    load: LoadAnswer
    ejections: int
    ejected_for_s: float = Field(description="Seconds until it is tried again.")


class EndpointList(ListAnswer):
    data: list[EndpointAnswer]
    drained_and_gone: list[str] = Field(
        description="Drained addresses at which there is no endpoint at present."
    )


class ResultAnswer(Answer):
    pool: str = Field(examples=["default"])
    address: str = Field(examples=["10.0.0.7:8001"])
    error: str | None = Field(description="Null: this endpoint did it.")


class ResultList(ListAnswer):
    data: list[ResultAnswer]
    ok: bool = Field(description="Whether every endpoint did it.", examples=[True])


class DeploymentAnswer(Answer):
    model: str = Field(description="The public name.", examples=["demo"])
    name: str = Field(examples=["blue"])
    pool: str = Field(examples=["default"])
    triton_model: str = Field(examples=["demo"])
    version: str | None = Field(description="Null: the one that Triton chooses.")
    weight: float = Field(description="In force.", examples=[1.0])
    share: float = Field(description="Of the requests that no canary's rule takes.", examples=[1.0])
    configured_weight: float = Field(description="Of models.yaml.", examples=[0.9])


class DeploymentList(ListAnswer):
    data: list[DeploymentAnswer]


class QueueTenantAnswer(Answer):
    tenant: str = Field(
        description="Its id; without keys, the address of the caller.", examples=["acme"]
    )
    weight: float = Field(examples=[1.0])
    running: int = Field(examples=[20])
    waiting: int = Field(examples=[5])
    share: float = Field(description="Of the streams that run.", examples=[0.833333])


class QueueAnswer(Answer):
    queue: str = Field(description="Pool and Triton model.", examples=["default/demo"])
    capacity: int | None = Field(
        description="Streams that may run at once; null: no bound.", examples=[24]
    )
    running: int = Field(examples=[24])
    waiting: int = Field(examples=[5])
    tenants: list[QueueTenantAnswer] = Field(description="Those with the most streams, 50 at most.")
    tenants_in_all: int = Field(description="How many run or wait.", examples=[2])


class QueueList(ListAnswer):
    data: list[QueueAnswer]


def endpoint_body(status: EndpointStatus, drained: frozenset[str]) -> dict[str, Any]:
    return {
        **asdict(status),
        "state": status.state.value,
        "is_drained": status.address in drained,
    }


def results_body(results: Iterable[EndpointResult]) -> dict[str, Any]:
    data = [asdict(each) for each in results]
    return {"object": "list", "data": data, "ok": all(each["error"] is None for each in data)}


def deployment_bodies(
    plans: Plans, decisions: Decisions, model: str | None = None
) -> Iterator[dict[str, Any]]:
    """The deployments of one model, or of all, with the weights that are in force."""
    for name, plan in plans.items():
        if model not in (None, name):
            continue
        decided = decisions.weights(name)
        for one, share in zip(plan.deployments, plan.shares(decided), strict=True):
            yield {
                "model": name,
                "name": one.name,
                "pool": one.pool,
                "triton_model": one.model or name,
                "version": None if one.version is None else str(one.version),
                "weight": one.share_weight if decided is None else decided.get(one.name, 0.0),
                "share": round(share, 6),
                "configured_weight": one.share_weight,
            }
