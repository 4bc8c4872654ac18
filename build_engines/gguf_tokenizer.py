"""The tokenizer of a GGUF file, as transformers builds it, and what transformers leaves out.

The tests compare it with the published tokenizers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from build_engines.errors import BuildError
from build_engines.gguf_file import GgufFile

BYTE_LEVEL, SENTENCEPIECE = "gpt2", "llama"  # values of tokenizer.ggml.model
CONTROL = 3  # a value of tokenizer.ggml.token_type
# Values of tokenizer.ggml.pre, as llama.cpp's code has them: a word of the vocabulary is one
# token without merges, and a text begins with the bos token unless the file says otherwise.
WHOLE_WORDS = (
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "tekken",
)  # fmt: skip
GPT2_SPLIT, DIGITS_SPLIT = "gpt-2", "smollm"
# Control tokens that end an answer wherever they stand in a vocabulary, as llama.cpp has them: the
# metadata of many files name only one.
END_TOKENS = frozenset(
    {
        "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",  # Llama 3
        "<|im_end|>", "<|endoftext|>",  # Qwen, SmolLM
        "<|end|>",  # Phi
        "<end_of_turn>",  # Gemma
    }
)  # fmt: skip
END_KEYS = ("eos", "eot", "eom")
ID_KEYS = ("bos", *END_KEYS, "unknown", "padding")
TEMPLATE = "tokenizer.chat_template"


def tokenizer(file: GgufFile) -> Any:
    """A tokenizer of transformers, with the chat templates.

    Raises:
        BuildError: nobody knows how the tokenizer cuts a text, or its metadata contradict
            themselves.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

    kind, split = file.get("tokenizer.ggml.model"), file.get("tokenizer.ggml.pre")
    _check(file.path, kind, split)
    _check_vocabulary(file)
    try:
        _, vocabulary, options = get_gguf_tokenizer(str(file.path))
        backend, _ = convert_gguf_tokenizer(file.architecture, vocabulary)
    except Exception as error:  # tokenizers raises no narrower one
        raise BuildError(f"{file.path}: its vocabulary makes no tokenizer: {error!r}") from error
    if split in WHOLE_WORDS:
        backend.model.ignore_merges = True
    if split == DIGITS_SPLIT:
        _split_digits(backend)
    if kind == SENTENCEPIECE and file.get("tokenizer.ggml.add_space_prefix") is False:
        _add_no_space(backend)
    begins = kind == SENTENCEPIECE or split in WHOLE_WORDS
    found = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=file.number("context_length"),
        add_bos_token=file.get("tokenizer.ggml.add_bos_token", begins),
        **{name: value for name, value in options.items() if name != "chat_template"},
    )
    found.chat_template = _templates(file)
    return found


def end_ids(file: GgufFile) -> list[int]:
    """The tokens that end an answer: those that the metadata name, and those known by name."""
    named = [file.get(f"tokenizer.ggml.{key}_token_id") for key in END_KEYS]
    tokens = file.get("tokenizer.ggml.tokens")
    kinds = file.get("tokenizer.ggml.token_type") or [CONTROL] * len(tokens)
    known = [
        number
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == CONTROL and token in END_TOKENS
    ]
    return list(dict.fromkeys(each for each in [*named, *known] if each is not None))


def _check(path: Path, kind: Any, split: Any) -> None:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    if kind not in (BYTE_LEVEL, SENTENCEPIECE):
        raise BuildError(f"{path} has a tokenizer of the kind {kind!r}, which is not supported")
    known = {*GGUF_PRE_TOKENIZER_SPLITS, GPT2_SPLIT, DIGITS_SPLIT}
    if kind == BYTE_LEVEL and split not in known:
        raise BuildError(
            f"{path} has the pre-tokenizer {split!r} (tokenizer.ggml.pre), which is unknown: "
            "give the Hugging Face folder that the file was made from. Known are "
            f"{', '.join(sorted(known))}"
        )


def _check_vocabulary(file: GgufFile) -> None:
    """Tokens, and what the file says of each or some of them, belong together."""
    count = len(file.get("tokenizer.ggml.tokens") or [])
    for key in ("token_type", "scores"):
        if (found := len(file.get(f"tokenizer.ggml.{key}") or [])) not in (0, count):
            raise BuildError(
                f"{file.path}: tokenizer.ggml.{key} has {found} entries, and "
                f"tokenizer.ggml.tokens {count}"
            )
    for key in ID_KEYS:
        if not 0 <= (number := file.get(f"tokenizer.ggml.{key}_token_id") or 0) < count:
            raise BuildError(
                f"{file.path}: tokenizer.ggml.{key}_token_id is {number}, and there "
                f"are {count} tokens (tokenizer.ggml.tokens)"
            )


def _split_digits(backend: Any) -> None:
    from tokenizers import pre_tokenizers

    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )


def _add_no_space(backend: Any) -> None:
    from tokenizers import decoders, pre_tokenizers

    if isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace):
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )


def _templates(file: GgufFile) -> str | dict[str, str] | None:
    """By name where the file has more than one, such as one for chats with tools."""
    default, names = file.get(TEMPLATE), file.get("tokenizer.chat_templates") or []
    named = {name: file.get(f"{TEMPLATE}.{name}") for name in names}
    for name, template in {"default": default, **named}.items() if named else ():
        if template is None or not re.fullmatch(r"\w+", name):  # it becomes the name of a file
            raise BuildError(
                f"{file.path} has no chat template with the name {name!r}, or the "
                "name has other signs than letters, digits and _"
            )
    return {"default": default, **named} if named else default
