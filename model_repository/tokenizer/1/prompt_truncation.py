"""Prompts that are cut to a number of tokens: `truncate_prompt_tokens`."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Tokenizer

from admission import CUT_MARGIN_TOKENS

START_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class PromptCut:
    """At most `tokens`; what is lost is the beginning, or with `keeps_start` the end."""

    tokens: int
    keeps_start: bool

    def of_ids(self, ids: list[int]) -> list[int]:
        return ids[: self.tokens] if self.keeps_start else ids[-self.tokens :]

    def of_text(self, tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
        """Special tokens stay. Only as much of a long text is tokenized as it takes.

        A cut changes only the few tokens around it, which the margin is for.
        """
        special = tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0
        room = max(self.tokens - special, 0)
        size = START_CHARACTERS_A_TOKEN * (room + CUT_MARGIN_TOKENS)
        while True:
            kept = text[:size] if self.keeps_start else text[-size:]
            encoding = tokenizer.encode(kept, add_special_tokens=False)
            if size >= len(text) or len(encoding) >= room + CUT_MARGIN_TOKENS:
                break
            size *= 2
        encoding.truncate(room, direction="right" if self.keeps_start else "left")
        return list(tokenizer.post_process(encoding, None, add_special_tokens).ids)
