"""A tool-call parser's events: text, and the one call that is being written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from triton_openai.proxy.domain.events import (
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
    ToolEvent,
)
from triton_openai.proxy.syntax.parsing.parser import PushParser
from triton_openai.proxy.syntax.tools.errors import Broken
from triton_openai.proxy.syntax.tools.ids import NewId

# name of a tool -> JSON Schema of its arguments
Tools = Mapping[str, Mapping[str, Any]]


class CallWriter(PushParser[ToolEvent]):
    """A call is promised (ToolCallStarted) when it is clear that it is one.

    What was taken before that can be given back as text. `calls` counts the promised ones.
    """

    def __init__(self, tools: Tools | None, new_id: NewId, *, only_known: bool) -> None:
        super().__init__()
        self._tools: Tools = tools or {}
        self._only_known = only_known
        self._new_id = new_id
        self._blank: list[str] | None = []
        self.calls = 0
        self._begin_call()

    def _begin_call(self) -> None:
        self._name = ""
        self._is_promised = False
        self._is_open = False
        self._members = 0

    @property
    def is_open(self) -> bool:
        """Whether a call's arguments are being written."""
        return self._is_open

    @property
    def _may_promise(self) -> bool:
        is_known = not self._only_known or not self._tools or self._name in self._tools
        return bool(self._name) and is_known

    def _promise(self) -> None:
        """The call to `_name` starts, if it has not yet.

        Raises:
            Broken: there is no name, or none that may be called so.
        """
        if self._is_promised:
            return
        if not self._may_promise:
            raise Broken
        self._is_promised = self._is_open = True
        self._reader.recorded()
        self._blank = []
        index, self.calls = self.calls, self.calls + 1
        self._outbox.event(ToolCallStarted(index=index, id=self._id(index), name=self._name))

    def _id(self, index: int) -> str:
        return self._new_id(self._name, index)

    def _argue(self, fragment: str) -> None:
        index = self.calls - 1
        self._outbox.delta(
            index, lambda text: ToolCallArguments(index=index, fragment=text), fragment
        )

    def _done(self) -> None:
        """The arguments are complete. What is taken from here on is not lost if it breaks."""
        self._is_open = False
        self._reader.record()

    def _member(self, key: str) -> None:
        """Begins an argument, for families that do not write JSON; its value is next."""
        self._promise()
        self._reader.recorded()
        self._argue(f"{', ' if self._members else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        self._members += 1

    def _member_done(self) -> None:
        """The value is complete: what is taken from here on is not lost if it breaks."""
        self._reader.record()

    def _members_done(self) -> None:
        self._promise()
        self._argue("}" if self._members else "{}")
        self._done()

    def _say(self, text: str) -> None:
        """Text for the client; blank text waits until a call follows it or more text does."""
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        self._outbox.delta("text", TextDelta, text)
