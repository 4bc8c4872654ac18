"""The last step of a build: tables for tokenizer, detokenizer and guides, and the facts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from build_engines import tokenizer_tables
from build_engines.facts import Facts
from build_engines.step import Step
from build_engines.tool import Say

LAYOUT = 9  # layout of artifacts/<model>/; a new number makes every model stale
TOOLS = ("xgrammar", "tokenizers")  # packages that decide what the tables hold
Result = TypeVar("Result")


class Tables(Step):
    """The step. model: vocab_size and eos_token_id from config.json."""

    name = "tables"

    def __init__(
        self,
        store: Path,
        weights: Step,
        *,
        model: dict[str, Any],
        context_length: int,
        kv_token_bytes: int,
    ) -> None:
        super().__init__(store, [weights])
        self._model = {name: model.get(name) for name in ("vocab_size", "eos_token_id")}
        self._context_length = context_length
        self._kv_token_bytes = kv_token_bytes

    def inputs(self) -> Iterable[str]:
        given = [repr(self._model), str(self._context_length), str(self._kv_token_bytes)]
        return [*given, str(LAYOUT), *(version(package) for package in TOOLS)]

    def shown(self, target: Path) -> Iterable[str]:
        return [f"write {target / name}" for name in tokenizer_tables.FILES]

    def make(self, target: Path, say: Say) -> None:
        in_child(
            tokenizer_tables.make,
            str(self.after[0].folder), self._model, str(target),
            self._context_length, self._kv_token_bytes,
        )  # fmt: skip


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """By package; None where it is not installed."""
    return {package: _version(package) for package in packages}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def in_child(function: Callable[..., Result], *args: object) -> Result:
    """Runs the function in a new process, which returns its memory at the end."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("forkserver")) as pool:
        return pool.submit(function, *args).result()


FACTS = "facts.json"


def has_tables(folder: Path) -> bool:
    """Whether the tables stand beside the weights already, as in the shipped demo model: they are
    then taken as they are, so that no tool of a build is needed.
    """
    return all((folder / name).is_file() for name in tokenizer_tables.FILES)


def copy_tables(folder: Path, target: Path, facts: Facts) -> None:
    """Copies the tables into `target`, and writes these facts in place of the folder's."""
    for name in tokenizer_tables.FILES:
        if name != FACTS:
            shutil.copyfile(folder / name, target / name)
    facts.write(target / FACTS)


def facts_in(folder: Path) -> Facts:
    return Facts.read(folder / FACTS)
