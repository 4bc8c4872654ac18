"""Descriptions of /admin/v1/requests for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from triton_openai.proxy.api.openapi.operation import JSON, Content, Operation
from triton_openai.proxy.api.recent import requests_answers as answers
from triton_openai.proxy.api.recent.requests_query import RequestsQuery

TAG = "requests"
FIELDS: dict[str, Any] = {
    "id": "req_6f1c0d5e2b7a4c3f9e8d7c6b5a493827",
    "began_at": "2026-03-01T12:00:00.250+00:00",
    "answer_id": "chatcmpl-5f0c6a1b2d3e4f50",
    "method": "POST",
    "path": "/v1/chat/completions",
    "status": 200,
    "tenant": "acme",
    "key_id": "k3x9q27bt0mz",
    "model": "demo",
    "finish": "stop",
    "prompt_tokens": 21,
    "cached_tokens": 16,
    "completion_tokens": 48,
    "ttft_ms": 31.4,
    "duration_ms": 412.9,
}
STAGES: list[dict[str, Any]] = [
    {
        "name": "triton",
        "begin_ms": 2.1,
        "duration_ms": 410.2,
        "parent": None,
        "error": None,
        "attributes": {"endpoint": "10.0.0.7:8001"},
    },
    {
        "name": "prefill",
        "begin_ms": 3.0,
        "duration_ms": 27.5,
        "parent": 0,
        "error": None,
        "attributes": {},
    },
]
LIST = {"object": "list", "data": [FIELDS], "kept_at_most": 1000}

LIST_REQUESTS = Operation(
    tag=TAG,
    query=RequestsQuery,
    gives={JSON: Content(body=answers.RequestList, example=LIST)},
    errors=(400,),
)
SHOW_REQUEST = Operation(
    tag=TAG,
    path_parameters={"request": "The answer's `x-request-id`, or its `id`."},
    gives={JSON: Content(body=answers.RequestAnswer, example={**FIELDS, "stages": STAGES})},
)
