"""Messages that a client may send on the chat WebSocket. Used by `chat_socket`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, RootModel, Tag

from proxy.api.openai.requests.chat_body import ChatCompletionBody
from proxy.api.openai.requests.field_types import RequestBody
from proxy.api.openai.requests.generation_body import RequestId


class SocketChatBody(ChatCompletionBody):
    """A chat request. Every message that answers it has its `request_id`, if it has one."""

    stream: Literal[True] = True


class CancelBody(RequestBody):
    """Stops the request with that id; without an id, all requests of this socket."""

    type: Literal["cancel"]
    request_id: RequestId | None = None


class AnyMessage(BaseModel):
    """Any message, parsed only for its id, so that its refusal can name it."""

    request_id: str | None = None


def _kind(message: Any) -> str:
    """Tags in angle brackets stay out of error paths."""
    is_cancel = isinstance(message, dict) and message.get("type") == "cancel"
    return "<cancel>" if is_cancel else "<request>"


class SocketMessage(
    RootModel[
        Annotated[
            Annotated[CancelBody, Tag("<cancel>")] | Annotated[SocketChatBody, Tag("<request>")],
            Discriminator(_kind),
        ]
    ]
):
    """A chat request or a cancellation."""
