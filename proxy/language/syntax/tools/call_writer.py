"""The events of a tool-call parser: text, and the call that the model is writing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from proxy.domain.events import (
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
    ToolEvent,
)
from proxy.language.syntax.parsing.push_parser import PushParser
from proxy.language.syntax.tools.errors import Broken
from proxy.language.syntax.tools.ids import NewId

# name of a tool -> JSON Schema of its arguments
Tools = Mapping[str, Mapping[str, Any]]


class CallWriter(PushParser[ToolEvent]):
    """A call starts (ToolCallStarted) as soon as it is certain to be one; `calls` counts those.

    Until then the text taken for it can still be emitted as text.
    """

    def __init__(self, tools: Tools | None, new_id: NewId, *, only_known: bool) -> None:
        super().__init__()
        self._tools: Tools = tools or {}
        self._only_known = only_known
        self._new_id = new_id
        self._blank: list[str] | None = []
        self.calls = 0
        self._reset_call()

    def _reset_call(self) -> None:
        self._name = ""
        self._has_started = False
        self._is_open = False
        self._argument_count = 0

    @property
    def is_open(self) -> bool:
        """Whether the model is writing the arguments of a call."""
        return self._is_open

    @property
    def _may_start(self) -> bool:
        is_known = not self._only_known or not self._tools or self._name in self._tools
        return bool(self._name) and is_known

    def _start_call(self) -> None:
        """Starts the call to `_name`, if it has not started yet.

        Raises:
            Broken: there is no name, or no tool that has it.
        """
        if self._has_started:
            return
        if not self._may_start:
            raise Broken
        self._has_started = self._is_open = True
        self._reader.recorded()
        self._blank = []
        index, self.calls = self.calls, self.calls + 1
        self._events.event(ToolCallStarted(index=index, id=self._id(index), name=self._name))

    def _id(self, index: int) -> str:
        return self._new_id(self._name, index)

    def _emit_arguments(self, fragment: str) -> None:
        index = self.calls - 1
        self._events.delta(
            index, lambda text: ToolCallArguments(index=index, fragment=text), fragment
        )

    def _end_call(self) -> None:
        """The arguments are complete. Text taken from here on is emitted if the call breaks."""
        self._is_open = False
        self._reader.record()

    def _begin_argument(self, key: str) -> None:
        """Begins an argument, for families that do not write JSON; its value comes next."""
        self._start_call()
        self._reader.recorded()
        opening = ", " if self._argument_count else "{"
        self._emit_arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
        self._argument_count += 1

    def _end_argument(self) -> None:
        """The value is complete. Text taken from here on is emitted if the call breaks."""
        self._reader.record()

    def _close_arguments(self) -> None:
        self._start_call()
        self._emit_arguments("}" if self._argument_count else "{}")
        self._end_call()

    def _emit_text(self, text: str) -> None:
        """Emits text for the client; blank text waits until a call or more text follows it."""
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        self._events.delta("text", TextDelta, text)
