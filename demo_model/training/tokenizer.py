"""Byte-level BPE that splits a word the same way wherever it occurs, so that copying is simple.

A space is a token of its own before a word that could be a value; digits stand alone.
"""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

import itertools
import json
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from demo_model.training.chat import (
    CALL_CLOSE,
    CALL_OPEN,
    END,
    START,
    TEXT_END,
    Template,
)
from demo_model.training.corpus import MAIN, conversations

VOCABULARY = 2048
SAMPLES = 12_000

# Words that hardly ever start a value: they include their space.
LINKING = (
    "the a an is are am was were be in to of and for with from by as it its you me my your I what how who "
    "where which when why that this there do does can could will would have has not no so but or if at about "
    "need want please give show tell called named than more few much very who one they people like into out up "
    "day days today now then also only model small help name set"
).split()

# The fixed parts of a tool's schema and of a call, one piece each.
JSON_PARTS = (
    r'\{"name": "', r'", "description": "', r'", "parameters": \{"', r'": \{"type": "[a-z]+"', r', "description": "',
    r', "enum": \["', r', "items": \{"type": "[a-z]+"\}', r'\}, "required": \["', r'", "arguments": \{"',
)  # fmt: skip

PATTERN = "|".join(
    [
        *JSON_PARTS,
        rf" (?:{'|'.join(dict.fromkeys(LINKING))})(?!\p{{L}})",
        r"\p{Lu}?[\p{Ll}\p{M}]+|\p{Lu}+(?!\p{Ll})|[\p{L}\p{M}]+",
        r"\p{N}",
        r'[{}\[\]":,]+(?: [{}\[\]":,]+)* ?',
        r"[^\s\p{L}\p{N}]|\n+| +|\s",
    ]
)


def blank(vocabulary: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(vocabulary)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_tokenizer(seed: int) -> Tokenizer:
    """Trains a tokenizer; equal seeds give equal tokenizers."""
    template = Template()
    tokenizer = blank(models.BPE())
    added = [START, END, TEXT_END, CALL_OPEN, CALL_CLOSE]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(added),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    marks = re.compile("|".join(map(re.escape, added)))
    texts = (
        marks.sub("\n", template.whole(conversation))
        for conversation in itertools.islice(conversations(MAIN, seed), SAMPLES)
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in added[:3]]
    )
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in added[3:]])
    return tokenizer


def id_of(tokenizer: Tokenizer, text: str) -> int:
    """The id of a token that the vocabulary must have."""
    if (found := tokenizer.token_to_id(text)) is None:
        raise ValueError(f"the tokenizer has no token {text}")
    return found


def tokenizer_config(template: str) -> str:
    """The text of tokenizer_config.json, which transformers reads as well."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": TEXT_END,
        "bos_token": None,
        "unk_token": None,
        "additional_special_tokens": [START],
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
    }
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"
