"""A model of the scripted runtime: a folder with a tokenizer, and the script as token ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from build_engines import tokenizer_tables
from build_engines.errors import BuildError
from build_engines.scripted_options import ScriptedOptions

SCRIPT = "script.json"
CONTEXT_LENGTH = 131_072  # tokens, where models.yaml says nothing


def make(weights: str, target: str, context_length: int, options: dict[str, Any]) -> None:
    """Writes the tokenizer's tables and script.json into `target`. Imports torch: for a child.

    Args:
        options: of ScriptedOptions.

    Raises:
        BuildError: there is no usable tokenizer, or its answers have no end token.
    """
    tokenizer_tables.make(weights, {}, target, context_length, kv_token_bytes=0)
    script = ScriptedOptions.model_validate(options)
    end_ids = json.loads(Path(target, "facts.json").read_text())["end_ids"]
    if not end_ids and not script.repeats:
        raise BuildError(f"the tokenizer in {weights} has no end token: set scripted.repeats")
    written = _in_tokens(script, Path(target), () if script.repeats else end_ids[:1])
    Path(target, SCRIPT).write_text(json.dumps(written), encoding="utf-8")


def _in_tokens(script: ScriptedOptions, target: Path, ending: list[int] | tuple[()]) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    parts = {**script.after, "": script.text}  # every prompt ends with nothing
    return {
        **script.model_dump(include={"step_tokens", "step_ms", "log_prob", "fails_after"}),
        "repeats": script.repeats,
        "parts": [{"after": ids(end), "ids": [*ids(text), *ending]} for end, text in parts.items()],
    }
