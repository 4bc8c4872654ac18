"""Facts about a built model. The ensemble's Triton parameters carry them to the proxy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

INFILLING_PARAMETERS = ("fim_prefix", "fim_suffix", "fim_middle")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of one model; lengths are in tokens.

    strips_leading_space: decode() drops one space at the start of a text.

    tool_template: replaces chat_template for chats with tools, if the model has both.
    response_template: the JSON in which the checkpoint says how its answers are read.
    infilling: the special tokens before the prefix, the suffix and the middle.
    special_tokens: text by id; the detokenizer returns no bytes for them.
    added_marks: added tokens that are not special but look like markup, such as <think>.
    """

    context_length: int
    vocab_size: int
    end_ids: tuple[int, ...]
    chat_template: str | None
    bos_token: str
    eos_token: str
    strips_leading_space: bool
    special_tokens: dict[int, str]
    created: int
    kv_token_bytes: int  # keys and values of one token in the engine's cache
    infilling: tuple[str, str, str] | None = None
    tool_template: str | None = None
    response_template: str | None = None
    added_marks: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Facts:
        fields = json.loads(path.read_text(encoding="utf-8"))
        infilling = fields.get("infilling")
        return cls(
            **{
                **fields,
                "end_ids": tuple(fields["end_ids"]),
                "special_tokens": {
                    int(key): text for key, text in fields["special_tokens"].items()
                },
                "infilling": None if infilling is None else tuple(infilling),
                "added_marks": tuple(fields.get("added_marks", ())),
            }
        )

    def as_parameters(self) -> dict[str, str]:
        """Triton config parameters, which are strings; absent facts have no parameter."""
        parameters = {
            "context_length": str(self.context_length),
            "vocab_size": str(self.vocab_size),
            "end_ids": ",".join(map(str, self.end_ids)),
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "strips_leading_space": str(int(self.strips_leading_space)),
            "special_tokens": json.dumps(self.special_tokens, ensure_ascii=False),
            "created": str(self.created),
            "added_marks": json.dumps(self.added_marks, ensure_ascii=False),
        }
        if self.chat_template is not None:
            parameters["chat_template"] = self.chat_template
        if self.tool_template is not None:
            parameters["tool_template"] = self.tool_template
        if self.response_template is not None:
            parameters["response_template"] = self.response_template
        if self.infilling is not None:
            parameters |= zip(INFILLING_PARAMETERS, self.infilling, strict=True)
        return parameters
