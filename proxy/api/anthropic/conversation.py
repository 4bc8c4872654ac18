"""The messages of a body -> those that chat templates know, which differ in four ways:

- a result of a tool is a message of its own;
- turns alternate, so neighbors of one role become one message;
- images stand in the user's messages alone, so those of results move there;
- templates know the system prompt only at the beginning. Instructions in the middle are added to
  the user's turn, as a reminder; a beginning that changes would be in no cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from proxy.api.anthropic.content_blocks import (
    AnyMessage,
    DocumentBlock,
    ImageBlock,
    Part,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from proxy.api.anthropic.tool_bodies import ToolChange
from proxy.api.openai.field_types import image_of
from proxy.api.openai.foreign_items import ForeignItem
from proxy.api.openai.message_bodies import MOST_IMAGES
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed, in_short
from proxy.domain.image import Image
from proxy.domain.request import Message
from proxy.domain.tools import ToolCall

# Claude Code begins its system prompt so. It ends with a hash of the request, so that no two
# requests would share a cached prefix (vllm pull request 36829).
BILLING = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n*")
REMINDER = "<system-reminder>\n{}\n</system-reminder>"
BETWEEN = "\n\n"  # messages that become one


@dataclass(slots=True)
class Turn:
    """Messages of one role that follow each other. at: the number of the first; places: of all.
    notes: instructions of the system that belong here.
    """

    at: int
    role: str
    contents: list[str | Sequence[Part]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def parts(self) -> Iterator[Part]:
        return (part for _, part in self.placed)

    @property
    def placed(self) -> Iterator[tuple[str, Part]]:
        """With the path of each part."""
        for at, content in zip(self.places, self.contents, strict=True):
            for index, part in enumerate(() if isinstance(content, str) else content):
                yield f"messages[{at}].content[{index}]", part

    @property
    def said(self) -> Iterator[str | ImageBlock]:
        """Texts and images."""
        has_said = False
        for content in self.contents:
            parts = (content,) if isinstance(content, str) else content
            said = [
                part if isinstance(part, (str, ImageBlock)) else part.text
                for part in parts
                if isinstance(part, (str, TextBlock, DocumentBlock, ImageBlock, ForeignItem))
            ]
            if has_said and said:
                yield BETWEEN
            yield from said
            has_said = has_said or bool(said)

    @property
    def calls(self) -> list[ToolUseBlock]:
        return [part for part in self.parts if isinstance(part, ToolUseBlock)]

    @property
    def thought(self) -> str:
        return "".join(part.thinking for part in self.parts if isinstance(part, ThinkingBlock))


def tool_changes(messages: Sequence[AnyMessage]) -> Iterator[tuple[str, ToolChange]]:
    """Each with its path."""
    for at, message in enumerate(messages):
        for index, part in enumerate(() if isinstance(message.content, str) else message.content):
            if isinstance(part, ToolChange):
                yield f"messages[{at}].content[{index}]", part


def words_of(content: str | Sequence[TextBlock | ToolChange]) -> str:
    """The text, without a billing header."""
    if isinstance(content, str):
        texts = [content]
    else:
        texts = [block.text for block in content if isinstance(block, TextBlock)]
    found = ((BILLING.match(text), text) for text in texts)  # `sub` would search all of it
    return "".join(text if header is None else text[header.end() :] for header, text in found)


def conversation(
    system: str, messages: Sequence[AnyMessage], *, kept_thoughts: int | None = None
) -> tuple[tuple[Message, ...], tuple[Image, ...]]:
    """The messages of the chat, and all of their images.

    kept_thoughts: turns whose reasoning the model sees, from the last one back; None: all.

    Raises:
        InvalidRequest: calls and results do not pair, there is no turn, or there are too many
            images.
    """
    leading, turns = _turns(messages)
    if not turns:
        raise _wrong("'messages' has no message of role 'user'")
    thoughts = [turn.thought for turn in turns]
    if kept_thoughts is not None:
        thinking = [at for at, thought in enumerate(thoughts) if thought]
        for at in thinking[: max(len(thinking) - kept_thoughts, 0)]:
            thoughts[at] = ""
    found, images = list[Message](), list[Image]()
    if prompt := BETWEEN.join(filter(None, (system, *leading))):
        found.append(Message(role="system", content=prompt))
    open_turn: Turn | None = None  # whose calls want results
    for turn, thought in zip(turns, thoughts, strict=True):
        _check_pairs(open_turn, turn)
        open_turn = turn
        if turn.role == "assistant":
            found.append(_answer(turn, thought))
        else:
            found += _users(turn, images)
    _check_pairs(open_turn, Turn(len(messages), "user"))
    if len(images) > MOST_IMAGES:
        raise _wrong(f"'messages' has {len(images)} images, at most {MOST_IMAGES} are allowed")
    return tuple(found), tuple(images)


def _turns(messages: Sequence[AnyMessage]) -> tuple[list[str], list[Turn]]:
    """Instructions before the first turn, and the turns."""
    leading, turns = list[str](), list[Turn]()
    last = max((at for at, one in enumerate(messages) if one.role == "user"), default=-1)
    for at, message in enumerate(messages):
        if isinstance(message, SystemMessage):
            if message.clear_at == "next_user_message" and at < last:
                continue
            if not (words := words_of(message.content)):
                continue
            if not turns:
                leading.append(words)
                continue
            if turns[-1].role != "user":
                turns.append(Turn(at, "user"))
            turns[-1].notes.append(words)
            continue
        if not turns or turns[-1].role != message.role:
            turns.append(Turn(at, message.role))
        turns[-1].contents.append(message.content)
        turns[-1].places.append(at)
    return leading, turns


def _answer(turn: Turn, thought: str) -> Message:
    calls = tuple(ToolCall(id=call.id, name=call.name, arguments=call.input) for call in turn.calls)
    text = "".join(part for part in turn.said if isinstance(part, str))
    return Message(
        role="assistant",
        content=None if calls and not text else text,
        tool_calls=calls,
        reasoning=thought or None,
    )


def _users(turn: Turn, images: list[Image]) -> Iterator[Message]:
    """Results, then what the user says. Notes go to the user's words or, without any, to the last
    result: many templates drop the reasoning before a user's message.
    """
    notes = BETWEEN.join(map(REMINDER.format, turn.notes))
    results = [part for part in turn.parts if isinstance(part, ToolResultBlock)]
    shown = [
        image_of(part.source.url, f"{path}.content[{index}]")
        for path, result in turn.placed
        if isinstance(result, ToolResultBlock)
        for index, part in enumerate(_parts(result))
        if isinstance(part, ImageBlock)
    ]
    said: list[str | None] = [None] * len(shown)
    said += (None if isinstance(part, ImageBlock) else part for part in turn.said)
    has_own = any(said) or None in said
    for number, result in enumerate(results, 1):
        is_noted = number == len(results) and not has_own
        text = _result(result)
        parts = (text, notes) if is_noted and notes else (text,)
        yield Message(
            role="tool", content=BETWEEN.join(filter(None, parts)), tool_call_id=result.tool_use_id
        )
    if results and not has_own:
        return
    if notes:
        said.append(f"{BETWEEN}{notes}" if has_own else notes)
    images += shown
    images += (
        image_of(part.source.url, path)
        for path, part in turn.placed
        if isinstance(part, ImageBlock)
    )
    yield Message(
        role="user",
        content="".join(filter(None, said)),
        parts=tuple(said) if None in said else (),
        result_images=len(shown),
    )


def _parts(
    result: ToolResultBlock,
) -> Sequence[
    TextBlock | ImageBlock | DocumentBlock | ToolReferenceBlock | ForeignItem | ToolChange
]:
    return [] if result.content is None or isinstance(result.content, str) else result.content


def _result(result: ToolResultBlock) -> str:
    """Templates have no place for `is_error`, so the text says it."""
    text = result.content if isinstance(result.content, str) else ""
    text = text or "".join(
        part.text for part in _parts(result) if not isinstance(part, (ImageBlock, ToolChange))
    )
    return f"Error: {text}" if result.is_error and not text.lower().startswith("error") else text


def _check_pairs(before: Turn | None, turn: Turn) -> None:
    """Checks that the calls of a turn have results in the next one, and the results their calls."""
    calls = [] if before is None else [call.id for call in before.calls]
    answered = [part.tool_use_id for part in turn.parts if isinstance(part, ToolResultBlock)]
    called, results = set(calls), set(answered)
    if before is not None and len(called) < len(calls):
        raise _wrong(f"messages.{before.at}: `tool_use` ids must be unique")
    if len(results) < len(answered):
        raise _wrong(
            f"messages.{turn.at}: each tool_use must have a single result. Found multiple "
            "`tool_result` blocks with the same id"
        )
    if (unknown := next((one for one in answered if one not in called), None)) is not None:
        raise _wrong(
            f"messages.{turn.at}: unexpected `tool_use_id` found in `tool_result` blocks: "
            f"{echoed(unknown)}. Each `tool_result` block must have a corresponding `tool_use` "
            "block in the previous message"
        )
    if before is not None and (missing := [one for one in calls if one not in results]):
        raise _wrong(
            f"messages.{before.at}: `tool_use` ids were found without `tool_result` blocks "
            f"immediately after: {in_short(', '.join(missing))}. Each `tool_use` block must have a "
            "corresponding `tool_result` block in the next message"
        )


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(f"{message}.", code=ErrorCode.INVALID_MESSAGES, param="messages")
