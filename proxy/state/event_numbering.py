"""Numbers the events of an SSE stream, and separates them from comments. Does no I/O."""

from __future__ import annotations

import re

END = b"\n\n"
# `: name <JSON string, list or object>`: data that the client asked for (stream_format.Annotation)
_ANNOTATION = re.compile(rb': \w+ ["\[{]')


class EventNumbering:
    """events: how many there were. Bytes may be cut anywhere; lines must end with `\\n`."""

    def __init__(self) -> None:
        self.events = 0
        self._rest = b""
        self._annotations = b""

    def push(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """Returns (one part for each complete event, comments that are not kept).

        A part is the event with its `id: n`, and the annotations before it.
        """
        blocks = (self._rest + data).split(END)
        self._rest = blocks.pop()
        parts: list[bytes] = []
        comments: list[bytes] = []
        for block in blocks:
            if not block.startswith(b":"):
                parts.append(self._numbered(block + END))
            elif _ANNOTATION.match(block):
                self._annotations += block + END
            else:
                comments.append(block + END)
        return parts, comments

    def flush(self) -> list[bytes]:
        """What the stream ended with, without a complete event."""
        rest = self._annotations + self._rest
        self._annotations = self._rest = b""
        return [rest] if rest else []

    def _numbered(self, event: bytes) -> bytes:
        self.events += 1
        annotations, self._annotations = self._annotations, b""
        return b"%sid: %d\n%s" % (annotations, self.events, event)
