"""The file of operators' decisions: its form, and how it is read and replaced as a whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triton_openai.proxy.domain.errors import Conflict, ErrorCode
from triton_openai.proxy.domain.weight_history import WeightHistory

LARGEST = 1_000_000  # bytes
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class UnreadableDecisions(Exception):
    """The file is too large, or is not what this program writes."""


class HistoryEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    current: dict[str, Weight] | None = None
    earlier: tuple[dict[str, Weight] | None, ...] = ()


class DecisionsFile(BaseModel):
    """drained: addresses. weights: of deployments, by public model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drained: frozenset[str] = frozenset()
    weights: dict[str, HistoryEntry] = {}

    def history(self, model: str) -> WeightHistory:
        found = self.weights.get(model)
        if found is None:
            return WeightHistory()
        return WeightHistory(current=found.current, earlier=found.earlier)

    def with_drained(self, drained: Iterable[str]) -> DecisionsFile:
        return self.model_copy(update={"drained": frozenset(drained)})

    def with_history(self, model: str, history: WeightHistory) -> DecisionsFile:
        others = {name: entry for name, entry in self.weights.items() if name != model}
        entry = HistoryEntry(current=history.current, earlier=history.earlier)
        mine = {} if history.is_empty else {model: entry}
        return self.model_copy(update={"weights": {**others, **mine}})


NO_DECISIONS = DecisionsFile()


def read(path: Path) -> DecisionsFile:
    """What the file says; NO_DECISIONS without a file.

    Raises:
        OSError: it cannot be read.
        UnreadableDecisions: it is too large, no JSON, or of another form.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        return NO_DECISIONS
    if len(content) > LARGEST:
        raise UnreadableDecisions(f"it has more than {LARGEST:,} bytes")
    try:
        return DecisionsFile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UnreadableDecisions(f"{where}: {first['msg']}" if where else first["msg"]) from None


def write(path: Path, decisions: DecisionsFile) -> None:
    """Replaces the file, readable for its owner only; a crash leaves the old or the new one.

    Raises:
        OSError: it cannot be written.
        Conflict: it would be too large to be read.
    """
    content = decisions.model_dump_json(indent=1).encode() + b"\n"
    if len(content) > LARGEST:
        raise Conflict(
            f"The file of decisions would have more than {LARGEST:,} bytes: undrain endpoints that "
            "are gone.",
            code=ErrorCode.TOO_MANY_DECISIONS,
            param=None,
        )
    with tempfile.NamedTemporaryFile(  # which has the mode 0600
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
