"""Builds a scripted model: the tokenizer's tables, and the script as token ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from build_engines import (
    fetch,
    tokenizer_tables,
    whole_folder,
)
from build_engines.errors import BuildError
from build_engines.models_file import ScriptedEntry, ScriptedOptions
from build_engines.step import Step
from build_engines.tables_step import (
    LAYOUT,
    TOOLS,
    copy_tables,
    facts_in,
    has_tables,
    in_child,
    versions,
)
from build_engines.tool import Say
from build_engines.whole_folder import Provenance, contents_hash

SCRIPT = "script.json"
CONTEXT_LENGTH = 131_072  # tokens; models.yaml may set another length


def is_built(name: str, entry: ScriptedEntry, artifacts: Path) -> bool:
    """Whether artifacts/<name>/ was made from this tokenizer with this script."""
    weights = fetch.step(entry.weights, artifacts)
    return weights.is_done and whole_folder.is_made(artifacts / name, _provenance(entry, weights))


def needs_tools(entry: ScriptedEntry, artifacts: Path) -> bool:
    """Whether a build imports torch and transformers, or fetches the weights."""
    weights = fetch.step(entry.weights, artifacts)
    return not weights.is_done or not has_tables(weights.folder)


def build(name: str, entry: ScriptedEntry, artifacts: Path, say: Say) -> None:
    """
    Raises:
        BuildError: there is no usable tokenizer.
    """
    weights = fetch.step(entry.weights, artifacts)
    if not weights.is_done:
        weights.run(lambda line: say(f"{name}: {line}"))
    say(f"{name}: making the tokenizer tables and the script")
    script, folder = entry.scripted, weights.folder
    with whole_folder.made(artifacts / name, _provenance(entry, weights)) as target:
        if has_tables(folder):
            facts = replace(
                facts_in(folder),
                context_length=_context_length(entry),
                kv_token_bytes=0,
            )
            copy_tables(folder, target, facts)
        else:
            in_child(make_tables, str(folder), str(target), _context_length(entry))
        _write_script(script, folder, target)
    say(f"{name}: built, with {_context_length(entry)} tokens of context")


def shown(name: str, entry: ScriptedEntry, artifacts: Path) -> Iterator[str]:
    """The files that a build would write."""
    weights = fetch.step(entry.weights, artifacts)
    if not weights.is_done:
        yield from weights.shown(weights.folder)
    names = (*tokenizer_tables.FILES, SCRIPT, whole_folder.KEY_FILE)
    yield from (f"write {artifacts / name / file}" for file in names)


def make_tables(weights: str, target: str, context_length: int) -> None:
    """Writes the tokenizer's tables into `target`. Imports torch, so `build` runs it in a child."""
    tokenizer_tables.make(weights, {}, target, context_length, kv_token_bytes=0)


def _write_script(script: ScriptedOptions, weights: Path, target: Path) -> None:
    """
    Raises:
        BuildError: the tokenizer has no end token for the answers.
    """
    end_ids = list(facts_in(target).end_ids)
    if not end_ids and not script.repeats:
        raise BuildError(f"the tokenizer in {weights} has no end token: set scripted.repeats")
    written = _in_tokens(script, target, [] if script.repeats else end_ids[:1])
    (target / SCRIPT).write_text(json.dumps(written), encoding="utf-8")


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


def _provenance(entry: ScriptedEntry, weights: Step) -> Provenance:
    made_of = [
        entry.scripted.model_dump_json(),
        str(_context_length(entry)),
        str(LAYOUT),
        contents_hash(weights.folder),
    ]
    tools = {} if has_tables(weights.folder) else versions(TOOLS)
    return Provenance(key=hashlib.sha256("\n".join(made_of).encode()).hexdigest(), tools=tools)
