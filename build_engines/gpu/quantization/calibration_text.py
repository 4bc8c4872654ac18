"""The texts that a quantization measures, and the build step that writes them down.

The folder has the form that upstream's quantize.py reads with `--calib_dataset`: a file of the
split `train` with a column `text` (get_calib_dataloader of tensorrt_llm/quantization/
quantize_by_modelopt.py, commit 042c510d).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from build_engines.errors import BuildError
from build_engines.step import Step
from build_engines.tool import Say

SHIPPED = Path(__file__).with_name("calibration.jsonl")
FILE = "train.jsonl"
# get_calib_dataloader takes a path with one of these for a data set of the hub.
HUB_NAMES = ("cnn_dailymail", "scienceqa", "science_qa")


class CalibrationText(Step):
    """Writes the texts as JSON lines. The key depends on the texts, not on the file's path."""

    name = "calibration"

    def __init__(self, store: Path, path: Path | None, samples: int) -> None:
        """
        Args:
            path: the user's file; None for the texts that ship with this package.
            samples: how many of the file's first texts are taken, at most.

        Raises:
            BuildError: the file cannot be read, or has no texts.
        """
        super().__init__(store)
        self._path = path or SHIPPED
        self._texts = read(self._path, samples)

    def inputs(self) -> Iterable[str]:
        return [hashlib.sha256(self._lines().encode()).hexdigest()]

    def shown(self, target: Path) -> Iterable[str]:
        return [f"write {len(self._texts)} texts of {self._path} to {target / FILE}"]

    def make(self, target: Path, say: Say) -> None:
        (target / FILE).write_text(self._lines(), encoding="utf-8")

    def _lines(self) -> str:
        return "".join(
            json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in self._texts
        )


def read(path: Path, samples: int) -> tuple[str, ...]:
    """The first texts of a file: .jsonl has an object with `text` in each line, .txt paragraphs.

    Raises:
        BuildError: the file cannot be read, has another form, or has no texts.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"calibration.file {path} cannot be read: {error}") from error
    texts = _json_lines(path, content) if path.suffix == ".jsonl" else _paragraphs(content)
    found = tuple(islice(texts, samples))
    if not found:
        raise BuildError(f"calibration.file {path} has no texts")
    return found


def as_data_set(folder: Path) -> str:
    """The folder as quantize.py's `--calib_dataset`.

    Raises:
        BuildError: quantize.py would take the path for a data set of the hub.
    """
    if found := [name for name in HUB_NAMES if name in str(folder).lower()]:
        raise BuildError(
            f"TensorRT-LLM's quantize.py takes every path with {found[0]!r} for that data set of "
            f"the hub: choose another ARTIFACTS_DIR, or rename the model ({folder})"
        )
    return str(folder)


def _json_lines(path: Path, content: str) -> Iterator[str]:
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            parsed = json.loads(line)
        except ValueError as error:
            raise BuildError(f"{path}:{number}: {error}: a line must be a JSON object") from error
        text = parsed.get("text") if isinstance(parsed, dict) else None
        if not isinstance(text, str) or not text.strip():
            raise BuildError(f'{path}:{number}: a line must be an object with a "text"')
        yield text


def _paragraphs(content: str) -> Iterator[str]:
    """Texts with a blank line between them."""
    lines: list[str] = []
    for line in [*content.splitlines(), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
