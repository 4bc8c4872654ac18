"""Messages that a client may send on the chat WebSocket."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, RootModel, StringConstraints, Tag

from triton_openai.proxy.api.openai.requests.bodies import ChatCompletionBody, RequestBody

RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]


class SocketChatBody(ChatCompletionBody):
    """A chat request; every answer to it carries its `request_id`, if it has one."""

    stream: Literal[True] = True


class CancelBody(RequestBody):
    """Stops the request of that id; without one, all of this socket."""

    type: Literal["cancel"]
    request_id: RequestId | None = None


class AnyMessage(BaseModel):
    """What a refused message is looked through for."""

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
    """One of the two."""
