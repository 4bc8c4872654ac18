"""Turns conversations into batches of token ids; only the assistant's turns are learned."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from demo_model.training.chat import END, START, TEXT_END, Template
from demo_model.training.corpus import Mixture, conversations
from demo_model.training.tokenizer import id_of

IGNORED = -100
CHUNK = 384  # conversations that are sorted by length as one group
LONGEST = 640  # tokens; longer conversations are left out


@dataclass(frozen=True, slots=True)
class Batch:
    ids: Tensor  # [rows, tokens]
    targets: Tensor  # same shape; IGNORED where nothing is learned


@dataclass(frozen=True, slots=True)
class Encoder:
    tokenizer: Tokenizer
    template: Template

    @property
    def pieces(self) -> tuple[str, ...]:
        """The tokenizer's pieces of lower-case letters only, without their leading space."""
        found = (re.fullmatch("Ġ?([a-z]{2,})", piece) for piece in self.tokenizer.get_vocab())
        return tuple(sorted({match[1] for match in found if match}))

    def __call__(self, texts: list[str]) -> list[tuple[list[int], list[int]]]:
        return [self.labelled(coded.ids) for coded in self.tokenizer.encode_batch(texts)]

    def labelled(self, ids: list[int]) -> tuple[list[int], list[int]]:
        """Inputs and the token after each of them, or IGNORED outside of the assistant's turns."""
        start, end = id_of(self.tokenizer, START), id_of(self.tokenizer, END)
        opening = self.tokenizer.encode(f"{START}assistant\n").ids
        targets = [IGNORED] * len(ids)
        at = 0
        while at < len(ids):
            if ids[at] == start and ids[at : at + len(opening)] == opening:
                at += len(opening)
                stop = ids.index(end, at)
                targets[at - 1 : stop] = ids[at : stop + 1]
                at = stop
            at += 1
        return ids, targets


def chunk(
    encoder: Encoder, mixture: Mixture, seed: int, tokens: int, candidates: int = 1
) -> list[Batch]:
    """Yields the batches of one chunk, at most about `tokens` x `candidates` each, shuffled."""
    drawn = itertools.islice(conversations(mixture, seed, encoder.pieces), CHUNK * candidates)
    coded = encoder([encoder.template.whole(conversation) for conversation in drawn])
    coded = sorted(
        (pair for pair in coded if len(pair[0]) <= LONGEST), key=lambda pair: len(pair[0])
    )
    pad = id_of(encoder.tokenizer, TEXT_END)
    groups: list[list[tuple[list[int], list[int]]]] = [[]]
    for pair in coded:
        if groups[-1] and (len(groups[-1]) + 1) * len(pair[0]) > tokens * candidates:
            groups.append([])
        groups[-1].append(pair)
    random.Random(seed).shuffle(groups)
    return [padded(group, pad) for group in groups]


def padded(group: list[tuple[list[int], list[int]]], pad: int) -> Batch:
    length = max(len(ids) for ids, _ in group)
    ids = torch.full((len(group), length), pad)
    targets = torch.full((len(group), length), IGNORED)
    for row, (known, following) in enumerate(group):
        ids[row, : len(known)] = torch.tensor(known)
        targets[row, : len(following)] = torch.tensor(following)
    return Batch(ids, targets)
