"""Turns conversations into batches of token ids; only the assistant's turns are learned."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from demo_model.training.chat import END, SLIP, START, TEXT_END, Conversation, Template
from demo_model.training.corpus import Mixture, conversations
from demo_model.training.tokenizer import id_of

IGNORED = -100
CHUNK = 384  # conversations that are sorted by length as one group
SPLIT_SHARE = 0.3  # of the tokens that can be split
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

    def __call__(self, drawn: list[Conversation], seed: int) -> list[tuple[list[int], list[int]]]:
        """seed: which tokens of guided answers are split."""
        rng, splits = random.Random(seed), self.splits
        chats = [one for one in drawn if not one.is_plain]
        coded = iter(self.tokenizer.encode_batch([self.template.whole(one) for one in chats]))
        return [
            self.plain(one)
            if one.is_plain
            else self.structured(one, next(coded).ids, splits, rng)
            if one.is_guided or SLIP in one.answer
            else self.labelled(next(coded).ids, is_guided=False)
            for one in drawn
        ]

    def plain(self, one: Conversation) -> tuple[list[int], list[int]]:
        """A prompt and its learned continuation, which ends the text."""
        prompt = self.tokenizer.encode(str(one.messages[0]["content"])).ids
        answer = self.tokenizer.encode(one.answer + TEXT_END).ids
        return prompt + answer[:-1], [IGNORED] * (len(prompt) - 1) + answer

    def structured(
        self,
        one: Conversation,
        ids: list[int],
        splits: dict[int, list[tuple[int, int]]],
        rng: random.Random,
    ) -> tuple[list[int], list[int]]:
        """An answer as JSON: some of its tokens are split, and its slips are not learned."""
        if SLIP not in one.answer:
            return self.labelled(self.split(ids, splits, rng), is_guided=True)
        parts = [self.tokenizer.encode(text).ids for text in self.template.whole(one).split(SLIP)]
        parts[0] = self.split(parts[0], splits, rng)
        ids = [id for part in parts for id in part]
        ids, targets = self.labelled(ids, is_guided=one.is_guided)
        at = 0
        for number, part in enumerate(parts):
            if number % 2:
                targets[at - 1 : at - 1 + len(part)] = [IGNORED] * len(part)
            at += len(part)
        return ids, targets

    @property
    def splits(self) -> dict[int, list[tuple[int, int]]]:
        """Tokens of JSON's marks only -> the pairs of tokens that have the same text.

        A guide may leave only the first of a pair: not the quote after a colon, but a digit.
        """
        known = {
            text.replace("Ġ", " "): id
            for text, id in self.tokenizer.get_vocab().items()
            if re.fullmatch(r'[{}\[\]":,Ġ]+', text)
        }
        pairs = {
            id: [
                (known[text[:at]], known[text[at:]])
                for at in range(1, len(text))
                if text[:at] in known and text[at:] in known
            ]
            for text, id in known.items()
        }
        return {id: found for id, found in pairs.items() if found}

    def split(
        self, ids: list[int], splits: dict[int, list[tuple[int, int]]], rng: random.Random
    ) -> list[int]:
        """Splits some tokens of the last turn in two; the text stays the same."""
        last = len(ids) - ids[::-1].index(id_of(self.tokenizer, START))
        spelled = ids[:last]
        for id in ids[last:]:
            pairs = splits.get(id)
            spelled += rng.choice(pairs) if pairs and rng.random() < SPLIT_SHARE else (id,)
        return spelled

    def labelled(self, ids: list[int], *, is_guided: bool) -> tuple[list[int], list[int]]:
        """Inputs and the token after each of them, or IGNORED outside of the assistant's turns."""
        start, end = id_of(self.tokenizer, START), id_of(self.tokenizer, END)
        opening = self.tokenizer.encode(f"{START}assistant\n").ids
        targets = [IGNORED] * len(ids)
        at, first = 0, 0
        while at < len(ids):
            if ids[at] == start and ids[at : at + len(opening)] == opening:
                at += len(opening)
                first, stop = at, ids.index(end, at)
                targets[at - 1 : stop] = ids[at : stop + 1]
                at = stop
            at += 1
        if is_guided:
            targets[first - 1] = IGNORED
        return ids, targets


def chunk(
    encoder: Encoder, mixture: Mixture, seed: int, tokens: int, candidates: int = 1
) -> list[Batch]:
    """Yields the batches of one chunk, at most about `tokens` x `candidates` each, shuffled."""
    drawn = itertools.islice(conversations(mixture, seed, encoder.pieces), CHUNK * candidates)
    coded = encoder([*drawn], seed)
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
