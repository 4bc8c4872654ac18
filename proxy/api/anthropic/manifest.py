"""Anthropic's Messages API."""

from __future__ import annotations

from proxy.api.anthropic.answer_bodies import MessageError, MessageEvent
from proxy.api.anthropic.error_form import message_error
from proxy.api.http.stream_format import NamedEvents
from proxy.api.manifest import AnswerWords, ErrorForm, Manifest, Route
from proxy.domain.identity import Scope

PATH = "/v1/messages"
MESSAGE_EVENTS = NamedEvents(
    keep_alive=b'event: ping\ndata: {"type":"ping"}\n\n',
    error_body=message_error,
)

ANTHROPIC = Manifest(
    routes={
        PATH: Route(need=Scope.CHAT, operation="chat", is_recorded=True, framing=MESSAGE_EVENTS),
        f"{PATH}/count_tokens": Route(need=Scope.TOKENS),
    },
    errors=ErrorForm(prefix=PATH, body=message_error, model=MessageError, id_header="request-id"),
    events=(MessageEvent, MessageError),
    described={"MessagesBody": ("messages",), "CountTokensBody": ("messages",)},
    words=AnswerWords(
        texts=frozenset({"text", "thinking", "partial_json", "name", "input"}),
        finish="stop_reason",
        # Which of them were cached is no difference.
        prompt_tokens=frozenset({"input_tokens", "cache_read_input_tokens"}),
        output_tokens="output_tokens",
    ),
)
