"""`truncate_prompt_tokens`: cuts prompts to a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Tokenizer

from admission import CUT_MARGIN_TOKENS

CHARACTERS_A_TOKEN = 4  # a guess of how much text to tokenize for a token


@dataclass(frozen=True, kw_only=True)
class PromptTruncation:
    """Keeps at most `tokens`: those at the end, or with `keeps_start` those at the beginning."""

    tokens: int
    keeps_start: bool

    def of_ids(self, ids: list[int]) -> list[int]:
        return ids[: self.tokens] if self.keeps_start else ids[-self.tokens :]

    def of_text(self, tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
        """Tokenizes only as much of a long text as it needs, and keeps the special tokens.

        Cutting a text changes only the few tokens around the cut; the margin is for these.
        """
        special = tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0
        room = max(self.tokens - special, 0)
        size = CHARACTERS_A_TOKEN * (room + CUT_MARGIN_TOKENS)
        while True:
            kept = text[:size] if self.keeps_start else text[-size:]
            encoding = tokenizer.encode(kept, add_special_tokens=False)
            if size >= len(text) or len(encoding) >= room + CUT_MARGIN_TOKENS:
                break
            size *= 2
        encoding.truncate(room, direction="right" if self.keeps_start else "left")
        return list(tokenizer.post_process(encoding, None, add_special_tokens).ids)
