"""A Hugging Face tokenizer -> tokenizer.json, token bytes, guide tables, and the model's facts.

The detokenizer's table must give the same text as the tokenizer's decode(); `check` compares both
for every token. Imports torch through xgrammar, so `build` runs it in a child process.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from build_engines.errors import BuildError
from build_engines.facts import Facts

# Names of the special tokens before the prefix, the suffix and the middle.
INFILLING_TOKENS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek Coder
)
MARK = re.compile(r"[<\[｜|]\S*[>\]｜|]")
FILES = ("tokenizer.json", "token_bytes.npz", "guide.json", "facts.json")
NO_TEXT = b"\xff"  # a byte that valid UTF-8 never has
SAMPLES = (
    "Hello, world! It's 3.14 o'clock.",
    "def f(x):\n    return {'a': [x, 1]}\n",
    "Grüße, naïve café, 你好世界, привет, مرحبا, 🙂👩‍👩‍👧",
)


def make(
    weights: str, model: dict[str, Any], target: str, context_length: int, kv_token_bytes: int
) -> None:
    """Writes tokenizer.json, token_bytes.npz, guide.json and facts.json into `target`.

    Paths are strings. model: vocab_size and eos_token_id, if its config has them.

    Raises:
        BuildError: there is no usable tokenizer, or bytes cannot reproduce its text.
    """
    tokenizer, backend = _tokenizer(weights)
    folder = Path(target)
    backend.save(str(folder / "tokenizer.json"))
    table = token_bytes(tokenizer, vocab_size=model.get("vocab_size") or 0)
    vocab_size = model.get("vocab_size") or len(table)
    strips = strips_leading_space(backend, table)
    check(backend, table, strips=strips)
    _save_table(folder / "token_bytes.npz", table)
    end_ids = _end_ids(tokenizer, model, Path(weights))
    special = special_tokens(backend)
    guides = guide_info(table, vocab_size=vocab_size, end_ids=end_ids, special=special)
    chat_template, tool_template = chat_templates(tokenizer)
    (folder / "guide.json").write_text(guides, encoding="utf-8")
    Facts(
        context_length=context_length,
        vocab_size=len(table),
        end_ids=end_ids,
        chat_template=chat_template,
        tool_template=tool_template,
        response_template=response_template(getattr(tokenizer, "response_template", None)),
        bos_token=tokenizer.bos_token or "",
        eos_token=tokenizer.eos_token or "",
        strips_leading_space=strips,
        special_tokens=special,
        created=int(time.time()),
        kv_token_bytes=kv_token_bytes,
        infilling=infilling(backend),
        added_marks=added_marks(backend),
    ).write(folder / "facts.json")


def _tokenizer(weights: str) -> tuple[Any, Any]:
    """The tokenizer of transformers, and its backend of the tokenizers library."""
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(weights, local_files_only=True)
        return tokenizer, tokenizer.backend_tokenizer
    except Exception as error:  # transformers lets its loaders' errors through
        raise BuildError(f"no usable tokenizer in {weights}: {error}") from error


def token_bytes(tokenizer: Any, vocab_size: int) -> list[bytes]:
    """Raw bytes by id, for at least `vocab_size` ids, since a vocabulary may have gaps.

    Special tokens are empty, as in decode(skip_special_tokens=True).
    """
    from xgrammar import TokenizerInfo

    known = set(tokenizer.backend_tokenizer.get_vocab(with_added_tokens=True).values())
    vocab_size = max(vocab_size, max(known) + 1)
    info = TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
    table = list(info.decoded_vocab)
    for token_id, value in _with_zero_bytes(tokenizer.backend_tokenizer, info.vocab_type):
        table[token_id] = value
    for token_id, token in tokenizer.backend_tokenizer.get_added_tokens_decoder().items():
        table[token_id] = b"" if token.special else token.content.encode()
    return [value if token_id in known else b"" for token_id, value in enumerate(table)]


def _with_zero_bytes(backend: Any, kind: Any) -> Iterator[tuple[int, bytes]]:
    """The tokens with a zero byte, at which decoded_vocab of xgrammar 0.1 ends them.

    kind: xgrammar's VocabType.
    """
    from xgrammar import TokenizerInfo, VocabType

    zero = "\u0100" if kind == VocabType.BYTE_LEVEL else "\0"
    for token, token_id in backend.get_vocab(with_added_tokens=False).items():
        if zero in token:
            parts = TokenizerInfo(token.split(zero), vocab_type=kind).decoded_vocab
            yield token_id, b"\0".join(parts)
        elif token == "<0x00>" and kind == VocabType.BYTE_FALLBACK:
            yield token_id, b"\0"


def special_tokens(backend: Any) -> dict[int, str]:
    """Special tokens by id; the table has no bytes for them."""
    added = backend.get_added_tokens_decoder()
    return {token_id: token.content for token_id, token in added.items() if token.special}


def added_marks(backend: Any) -> tuple[str, ...]:
    """Added tokens that are not special but look like markup: `<think>`, `[/TOOL]`."""
    added = backend.get_added_tokens_decoder().values()
    return tuple(one.content for one in added if not one.special and MARK.fullmatch(one.content))


def guide_info(
    table: list[bytes], *, vocab_size: int, end_ids: tuple[int, ...], special: Mapping[int, str]
) -> str:
    """xgrammar's TokenizerInfo as JSON, for logits of `vocab_size`.

    Made from the table, so that a guide constrains the text that a client gets. Special tokens have
    no text: a guide allows one only where a structural tag names its id.
    """
    from xgrammar import TokenizerInfo, VocabType

    named = [
        NO_TEXT + special[token_id].encode()
        if special.get(token_id) and token_id not in end_ids
        else value
        for token_id, value in enumerate(table[:vocab_size])
    ]

    def serialized() -> str:
        info = TokenizerInfo(
            named,
            vocab_type=VocabType.RAW,
            vocab_size=vocab_size,
            stop_token_ids=list(end_ids),
        )
        return str(info.serialize_json())

    # What some versions of xgrammar cut at a zero byte, they would allow for the text before it.
    read = TokenizerInfo.deserialize_json(serialized()).decoded_vocab
    for token_id, (value, kept) in enumerate(zip(named, read, strict=False)):
        named[token_id] = value if kept == value else NO_TEXT
    return serialized()


def infilling(backend: Any) -> tuple[str, str, str] | None:
    """The model's fill-in-the-middle tokens, if it has them."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    return next((names for names in INFILLING_TOKENS if known.issuperset(names)), None)


def response_template(given: Any) -> str | None:
    """Its JSON, cut off behind one character more than the proxy takes."""
    try:
        return None if given is None else json.dumps(given)[:16_385]
    except RecursionError:
        return ""


def strips_leading_space(backend: Any, table: list[bytes]) -> bool:
    """Whether decode() drops the leading space of the first token, as SentencePiece does."""
    for token_id, value in enumerate(table):
        if len(value) > 1 and value[:1] == b" " and value[1:].isalpha():
            return not str(backend.decode([token_id], skip_special_tokens=True)).startswith(" ")
    return False


def check(backend: Any, table: list[bytes], *, strips: bool) -> None:
    """Compares the table with decode(), token by token and on sample texts."""
    texts = [[token_id] for token_id in backend.get_vocab(with_added_tokens=True).values()]
    texts += [backend.encode(text, add_special_tokens=False).ids for text in SAMPLES]
    for ids in texts:
        raw = b"".join(table[token_id] for token_id in ids)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            continue  # a part of a character has no text
        expected = backend.decode(ids, skip_special_tokens=True)
        if (text.removeprefix(" ") if strips else text) != expected:
            raise BuildError(
                f"the tokenizer decodes {ids[:8]} to {expected!r}, its bytes say {text!r}; "
                "this kind of tokenizer is not supported yet"
            )


def _save_table(path: Path, table: list[bytes]) -> None:
    blob = np.frombuffer(b"".join(table), dtype=np.uint8)
    ends = np.cumsum([len(value) for value in table], dtype=np.int64)
    np.savez(path, blob=blob, ends=ends)


def _end_ids(tokenizer: Any, model: dict[str, Any], weights: Path) -> tuple[int, ...]:
    """Every token that ends an answer, from tokenizer, model config and generation_config."""
    found: set[int] = set()
    generation = weights / "generation_config.json"
    configs = [model, json.loads(generation.read_text())] if generation.is_file() else [model]
    for value in [tokenizer.eos_token_id, *(config.get("eos_token_id") for config in configs)]:
        if value is not None:
            found.update(value if isinstance(value, list) else [value])
    return tuple(sorted(found))


def chat_templates(tokenizer: Any) -> tuple[str | None, str | None]:
    """The default chat template, and the one for chats with tools, as transformers chooses them."""
    found = tokenizer.chat_template
    if not isinstance(found, dict):
        found = {"default": found}
    return found.get("default") or None, found.get("tool_use") or None
