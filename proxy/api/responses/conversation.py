"""Items -> the messages that chat templates know.

The items of one turn of the model, its reasoning, text and calls, are one message. Instructions
before the first turn are one system prompt. Images of tools' outputs stand in a user's message:
templates show them only there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from typing_extensions import assert_never

from proxy.api.openai.field_types import image_of
from proxy.api.openai.foreign_items import ForeignItem
from proxy.api.openai.message_bodies import MOST_IMAGES, as_object
from proxy.api.responses.input_items import (
    AdditionalToolsItem,
    AnyItem,
    CallItem,
    CompactionItem,
    Content,
    CustomCallItem,
    InputImage,
    MessageItem,
    OutputItem,
    ReasoningItem,
    SearchCallItem,
    SearchOutputItem,
    ServerCallItem,
    opened,
)
from proxy.api.responses.tool_bodies import SEARCH, Offer
from proxy.domain.errors import ErrorCode, InvalidRequest, in_short
from proxy.domain.image import Image
from proxy.domain.request import Message
from proxy.domain.tools import ToolCall

BETWEEN = "\n\n"
SUMMARY = "<summary>\n{}\n</summary>"  # of the conversation so far, which it stands for


@dataclass(slots=True)
class Conversation:
    """Items, added one by one. leading: instructions before the first turn. The fields behind it
    are of the turn of the model that is still open: thought, said, calls. waiting: ids of the calls
    before, which want an output. shown: images of outputs. at: the place of the item in `input`;
    below 0 where it is of an earlier response.
    """

    offer: Offer = field(default_factory=Offer)
    at: int = -1
    messages: list[Message] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    leading: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    shown: list[Image] = field(default_factory=list)

    def add(self, item: AnyItem) -> None:
        """Raises InvalidRequest: a call has no output, or an output no call."""
        self.at += 1
        match item:
            case MessageItem(role="assistant"):
                self._end_outputs()
                self.said.append(_text(item.content))
            case MessageItem():
                self._end_turn()
                self._say(item)
            case CallItem():
                name = self.offer.name(item.namespace, item.name)
                self._call(ToolCall(id=item.call_id, name=name, arguments=item.arguments))
            case CustomCallItem():
                name = self.offer.name(item.namespace, item.name)
                call = ToolCall(id=item.call_id, name=name, arguments=item.input, is_custom=True)
                self._call(call)
            case OutputItem():
                self._answer(item.call_id, _text(item.output))
                self.shown += self._images(item.output, "output")
            case SearchCallItem(execution="client", call_id=str() as call_id):
                name = self.offer.name(None, SEARCH)
                self._call(ToolCall(id=call_id, name=name, arguments=_written(item.arguments)))
            case SearchOutputItem(call_id=str() as call_id) if call_id in self._awaited:
                self._answer(call_id, self.offer.listed(item.tools))
            case SearchCallItem() | SearchOutputItem() | AdditionalToolsItem():
                pass  # the offer has their tools
            case ForeignItem():
                self._end_outputs()
                if item.text:
                    self.said.append(f"{item.text}\n")
            case ServerCallItem():
                self._call(ToolCall(id=item.id, name=item.name, arguments=item.arguments))
                self._answer(item.id, item.output or in_short(str(item.error or "")))
            case ReasoningItem():
                if self.said or self.calls:
                    self._end_answer()
                self._end_outputs()
                self.thought.append(item.text)
            case CompactionItem():
                self._end_turn()
                text = SUMMARY.format(opened(item.encrypted_content))
                self.messages.append(Message(role="user", content=text))
            case _:
                assert_never(item)

    def end(self) -> tuple[tuple[Message, ...], tuple[Image, ...]]:
        """Raises InvalidRequest: a call has no output, or there are too many images."""
        self._end_turn()
        if len(self.images) > MOST_IMAGES:
            raise _wrong(
                f"'input' has {len(self.images)} images, at most {MOST_IMAGES} are allowed."
            )
        leading = [text for text in self.leading if text]
        prompt = (Message(role="system", content=BETWEEN.join(leading)),) if leading else ()
        return (*prompt, *self.messages), tuple(self.images)

    def _say(self, item: MessageItem) -> None:
        text, images = _text(item.content), self._images(item.content, "content")
        if item.role != "user" and not self.messages:
            self.leading.append(text)
            return
        parts: tuple[str | None, ...] = ()
        if images and not isinstance(item.content, str):
            parts = tuple(
                None if isinstance(part, InputImage) else part.text for part in item.content
            )
        self.images += images
        self.messages.append(Message(role=item.role, content=text, parts=parts))

    def _call(self, call: ToolCall) -> None:
        self._end_outputs()
        if call.id in self.calls:
            raise _wrong(f"'input' has two calls with the call_id {in_short(call.id)!r}.")
        self.calls[call.id] = call

    def _answer(self, call_id: str, text: str) -> None:
        self._end_answer()
        if call_id not in self.waiting:
            raise _wrong(
                f"No tool call found for function call output with call_id {in_short(call_id)}."
            )
        self.waiting.remove(call_id)
        self.messages.append(Message(role="tool", content=text, tool_call_id=call_id))

    def _end_answer(self) -> None:
        """The model's turn has no more items."""
        if not (self.thought or self.said or self.calls):
            return
        self._check_outputs()
        text = "".join(self.said)
        self.messages.append(
            Message(
                role="assistant",
                content=None if self.calls and not text else text,
                tool_calls=tuple(self.calls.values()),
                reasoning="".join(self.thought) or None,
            )
        )
        self.waiting = set(self.calls)
        self.thought, self.said, self.calls = [], [], {}

    def _end_outputs(self) -> None:
        """The outputs of the last calls are complete."""
        self._check_outputs()
        if self.shown:
            shown = len(self.shown)
            self.messages.append(
                Message(role="user", content="", parts=(None,) * shown, result_images=shown)
            )
            self.images += self.shown
            self.shown = []

    def _end_turn(self) -> None:
        self._end_answer()
        self._end_outputs()

    @property
    def _awaited(self) -> set[str]:
        return self.waiting or set(self.calls)

    def _images(self, content: Content, field: str) -> list[Image]:
        parts = () if isinstance(content, str) else enumerate(content)
        item = "input" if self.at < 0 else f"input[{self.at}]"
        return [
            image_of(part.image_url, f"{item}.{field}[{index}]")
            for index, part in parts
            if isinstance(part, InputImage)
        ]

    def _check_outputs(self) -> None:
        if self.waiting:
            missing = in_short(", ".join(sorted(self.waiting)))
            raise _wrong(f"No tool output found for function call {missing}.")


def conversation(
    instructions: str | None, items: Iterable[AnyItem], offer: Offer, before: int = 0
) -> tuple[tuple[Message, ...], tuple[Image, ...]]:
    """The messages of the chat, and all of their images. Raises as Conversation.

    before: how many of the items are of earlier responses.
    """
    leading = [instructions] if instructions else []
    found = Conversation(offer=offer, at=-1 - before, leading=leading)
    for item in items:
        found.add(item)
    return found.end()


def turns(items: Sequence[AnyItem]) -> list[int]:
    """Where items may be cut off at the beginning: before each message of the user but the last."""
    places = [
        at for at, item in enumerate(items) if isinstance(item, MessageItem) and item.role == "user"
    ]
    return places[1:]


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if not isinstance(part, InputImage))


def _written(arguments: object) -> str:
    """The arguments of a search for tools, given as an object or as its JSON."""
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return as_object(arguments if isinstance(arguments, str) else "")


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(message, code=ErrorCode.INVALID_MESSAGES, param="input")
