"""Follows a guide with xgrammar, from the guide.json beside the model: the first token allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


class Guided:
    def __init__(self, model: Path, params: Any) -> None:
        import xgrammar

        table = (model.parent / "guide.json").read_text(encoding="utf-8")
        info = xgrammar.TokenizerInfo.deserialize_json(table)
        compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        (kind,) = params.given()
        text = getattr(params, kind)
        compiled = {
            "json": compiler.compile_json_schema,
            "regex": compiler.compile_regex,
            "grammar": compiler.compile_grammar,
            "structural_tag": compiler.compile_structural_tag,
        }[kind](text)
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._mask = np.empty((1, -(-info.vocab_size // 32)), dtype=np.int32)

    def next(self) -> int:
        self._matcher.fill_next_token_bitmask(self._mask)
        bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits)
        ends = [token for token in self._matcher.stop_token_ids if bits[token]]
        token = int(ends[0] if ends else allowed[0])
        self._matcher.accept_token(token)
        return token
