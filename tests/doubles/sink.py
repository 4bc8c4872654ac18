"""A runtime's sink that keeps what it is given."""

from __future__ import annotations

import threading


class KeptTokens:
    """`after` is called with the number of tokens so far, `over` at the end.

    `end` is None while it runs.
    """

    def __init__(self, after=lambda count: None, over=lambda: None) -> None:
        self.ids: list[int] = []
        self.tokens: list = []
        self.echoed: list | None = None
        self.cached_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.blocks: list[int] = []
        self.has_row = False
        self.end: str | None = None
        self.message = self.code = ""
        self.is_over = threading.Event()
        self.is_gone = False
        self.after = after
        self._over = over

    def started(
        self, cached_tokens, *, is_late=False, began_at=None, blocks=(), prompt_tokens=None
    ) -> None:
        assert self.cached_tokens is None
        self.blocks = list(blocks)
        self.cached_tokens = cached_tokens
        self.prompt_tokens = prompt_tokens
        self.has_row = True

    def preempted(self) -> None:
        assert self.has_row
        self.has_row = False

    def resumed(self) -> None:
        assert self.cached_tokens is not None
        assert not self.has_row
        self.has_row = True

    def echo(self, tokens, finish) -> None:
        assert self.end is None
        assert not self.tokens
        assert self.echoed is None
        self.echoed = tokens
        if finish is not None:
            self._finish(finish)

    def token(self, token, finish) -> None:
        assert self.end is None
        assert self.has_row
        self.ids.append(token.id)
        self.tokens.append(token)
        self.after(len(self.ids))
        if finish is not None:
            self._finish(finish)

    def finished(self, finish) -> None:
        self._finish(finish)

    def refuse(self, param, message, *, code="invalid_parameter") -> None:
        self.code = code
        self._finish("refused", f"{param}: {message}")

    def fail(self, message) -> None:
        self._finish("failed", message)

    def cancelled(self) -> None:
        self._finish("cancelled")

    def is_behind(self) -> bool:
        return False

    def is_abandoned(self) -> bool:
        return self.is_gone

    def _finish(self, how: str, message: str = "") -> None:
        assert self.end is None
        self.end, self.message = how, message
        self.is_over.set()
        self._over()
