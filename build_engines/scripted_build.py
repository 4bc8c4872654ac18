"""Builds a scripted model: the tokenizer's tables, and the script as token ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triton_openai.build_engines import fetch, folder_hash, tokenizer_tables, whole_folder
from triton_openai.build_engines.errors import BuildError
from triton_openai.build_engines.models_file import ScriptedEntry
from triton_openai.build_engines.scripted_options import ScriptedOptions
from triton_openai.build_engines.step import Step
from triton_openai.build_engines.tables_step import in_child, tools
from triton_openai.build_engines.tool import Say

SCRIPT = "script.json"
CONTEXT_LENGTH = 131_072  # tokens; models.yaml may set another length


def is_built(name: str, entry: ScriptedEntry, artifacts: Path) -> bool:
    """Whether artifacts/<name>/ was made from this tokenizer with this script."""
    weights = fetch.step(entry.weights, artifacts)
    return weights.is_done and whole_folder.is_made(artifacts / name, _key(entry, weights))


def build(name: str, entry: ScriptedEntry, artifacts: Path, say: Say) -> None:
    """
    Raises:
        BuildError: there is no usable tokenizer.
    """
    weights = fetch.step(entry.weights, artifacts)
    if not weights.is_done:
        weights.run(lambda line: say(f"{name}: {line}"))
    say(f"{name}: making the tokenizer tables and the script")
    script = entry.scripted.model_dump()
    with whole_folder.made(artifacts / name, _key(entry, weights)) as target:
        in_child(make, str(weights.folder), str(target), _context_length(entry), script)
    say(f"{name}: built, with {_context_length(entry)} tokens of context")


def shown(name: str, entry: ScriptedEntry, artifacts: Path) -> Iterator[str]:
    """The files that a build would write."""
    weights = fetch.step(entry.weights, artifacts)
    if not weights.is_done:
        yield from weights.shown(weights.folder)
    names = (*tokenizer_tables.FILES, SCRIPT, whole_folder.KEY_FILE)
    yield from (f"write {artifacts / name / file}" for file in names)


def make(weights: str, target: str, context_length: int, options: dict[str, Any]) -> None:
    """Writes the tokenizer's tables and script.json into `target`.

    Imports torch, so `build` runs it in a child process.

    Args:
        options: the fields of ScriptedOptions.

    Raises:
        BuildError: there is no usable tokenizer, or it has no end token for the answers.
    """
    tokenizer_tables.make(weights, {}, target, context_length, kv_token_bytes=0)
    script = ScriptedOptions.model_validate(options)
    end_ids = json.loads(Path(target, "facts.json").read_text())["end_ids"]
    if not end_ids and not script.repeats:
        raise BuildError(f"the tokenizer in {weights} has no end token: set scripted.repeats")
    written = _in_tokens(script, Path(target), [] if script.repeats else end_ids[:1])
    Path(target, SCRIPT).write_text(json.dumps(written), encoding="utf-8")


def _in_tokens(script: ScriptedOptions, target: Path, ending: list[int]) -> dict[str, Any]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    parts = {**script.after, "": script.text}  # the empty ending matches every prompt
    return {
        **script.model_dump(exclude={"text", "after"}),
        "parts": [{"after": ids(end), "ids": [*ids(text), *ending]} for end, text in parts.items()],
    }


def _context_length(entry: ScriptedEntry) -> int:
    return entry.context_length or CONTEXT_LENGTH


def _key(entry: ScriptedEntry, weights: Step) -> str:
    script = entry.scripted.model_dump_json()
    made_of = [script, str(_context_length(entry)), *tools(), folder_hash.of(weights.folder)]
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()
