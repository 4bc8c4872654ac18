"""OpenAI's Responses API."""

from __future__ import annotations

from proxy.api.http.stream_format import SSE, NamedEvents
from proxy.api.manifest import AnswerWords, Manifest, Route
from proxy.api.responses.answer_bodies import ResponseError, ResponseEvent
from proxy.domain.identity import Scope

PATH = "/v1/responses"
KEPT = Route(need=Scope.CHAT, only_reads=True)
# Errors where nothing else of the response is known.
RESPONSE_ERRORS = NamedEvents(
    end=SSE.end,
    error_body=lambda body: {**body["error"], "type": "error", **body},
)

RESPONSES = Manifest(
    routes={
        PATH: Route(need=Scope.CHAT, operation="chat", is_recorded=True, framing=RESPONSE_ERRORS),
        f"{PATH}/compact": Route(need=Scope.CHAT),
        f"{PATH}/input_tokens": Route(need=Scope.TOKENS),
        f"{PATH}/{{response_id}}": KEPT,
        f"{PATH}/{{response_id}}/cancel": KEPT,
        f"{PATH}/{{response_id}}/input_items": KEPT,
    },
    events=(ResponseEvent, ResponseError),
    described={"ResponseBody": ("both", "chat", "responses")},
    words=AnswerWords(
        texts=frozenset({"name", "arguments", "input", "text"}),
        finish="status",
        prompt_tokens=frozenset({"input_tokens"}),
        output_tokens="output_tokens",
        whole="response",
    ),
)
