"""Descriptions of the routes that operate pools, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from triton_openai.proxy.api.openapi.operation import BODY, JSON, Content, Operation
from triton_openai.proxy.api.pools import pool_answers as answers
from triton_openai.proxy.api.pools import pool_bodies as bodies

TAG = "pools"
ENDPOINT: dict[str, Any] = {
    "pool": "default",
    "address": "10.0.0.7:8001",
    "state": "ready",
    "reason": None,
    "is_drained": False,
    "models": ["demo"],
    "streams": 12,
    "outstanding_tokens": 5120,
    "load": {"waiting": 0, "running": 12, "kv_in_use": 0.31, "is_stale": False},
    "ejections": 0,
    "ejected_for_s": 0.0,
}
ENDPOINTS = {
    "object": "list",
    "data": [ENDPOINT],
    "drained_and_gone": [],
}
DEPLOYMENT: dict[str, Any] = {
    "model": "demo",
    "name": "blue",
    "pool": "default",
    "triton_model": "demo",
    "version": None,
    "weight": 1.0,
    "share": 1.0,
    "configured_weight": 0.9,
}
DEPLOYMENTS = {"object": "list", "data": [DEPLOYMENT]}
TENANT = {"tenant": "acme", "weight": 1.0, "running": 20, "waiting": 5, "share": 0.833333}
QUEUE = {
    "queue": "default/demo",
    "capacity": 24,
    "running": 24,
    "waiting": 5,
    "tenants": [TENANT],
    "tenants_in_all": 2,
}
RESULT = {"pool": "default", "address": "10.0.0.7:8001", "error": None}
NAMES = {"model": "The model's name."}
ADDRESS = {"address": "10.0.0.7:8001"}


def _change(
    takes: type[BaseModel], request: Any, gives: type[BaseModel], example: Any, *refusals: int
) -> Operation:
    return Operation(
        tag=TAG,
        takes=takes,
        requests={"example": request},
        gives={JSON: Content(body=gives, example=example)},
        path_parameters=NAMES,
        errors=(*BODY, *refusals),
    )


def _list(gives: type[BaseModel], example: Any) -> Operation:
    return Operation(tag=TAG, gives={JSON: Content(body=gives, example=example)})


LIST_ENDPOINTS = _list(answers.EndpointList, ENDPOINTS)
DRAIN = _change(bodies.EndpointBody, ADDRESS, answers.EndpointList, ENDPOINTS, 409)
UNDRAIN = _change(bodies.EndpointBody, ADDRESS, answers.EndpointList, ENDPOINTS)
LIST_QUEUES = _list(answers.QueueList, {"object": "list", "data": [QUEUE]})
LOAD = _change(
    bodies.LoadBody,
    {"pools": ["default"]},
    answers.ResultList,
    {"object": "list", "data": [RESULT], "ok": True},
)
LIST_DEPLOYMENTS = _list(answers.DeploymentList, DEPLOYMENTS)
WEIGHTS = _change(
    bodies.WeightsBody,
    {"weights": {"blue": 95, "green": 5}},
    answers.DeploymentList,
    DEPLOYMENTS,
    409,
)
SWITCH = _change(
    bodies.SwitchBody, {"deployment": "green"}, answers.DeploymentList, DEPLOYMENTS, 409
)
ROLLBACK = _change(bodies.RollbackBody, {}, answers.DeploymentList, DEPLOYMENTS, 409)
