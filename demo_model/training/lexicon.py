"""Words, names and numbers, drawn from a seed; used by every writer of training text.

A stable hash splits all of them: what the evaluation uses is never in the training text.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from demo_model.training.oddwords import odd_word, piece_word
from demo_model.training.syllables import syllabic_word
from demo_model.training.wordlists import CITIES, NAMES, WORDS

DOMAINS = ["com", "org", "net", "io", "de", "fr"]
HELD_OUT_SHARE = 6  # one value in six belongs to the evaluation


class Split(Enum):
    TRAIN = "train"
    HELD_OUT = "held_out"


def is_held_out(value: str) -> bool:
    return zlib.crc32(value.lower().encode()) % HELD_OUT_SHARE == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What differs between the phases of the training; the evaluation has the defaults."""

    odd_words: float = 0.0  # share of the invented words, see `oddwords`
    piece_words: float = 0.0  # share of the other invented words, see `oddwords.piece_word`
    families: float = 0.55  # share of the tools that are of hand-written kinds
    disguises: float = 0.35  # share of the hand-written kinds, see `disguise`
    alike: float = 0.25  # share of the places in a set of tools that similar pairs take
    siblings: float = 0.0  # share of the sets of tools, see `siblings`
    odd_verbs: float = 0.0  # share of the assembled tools, see `assembly.drawn_verb`
    phrasal: float = 0.0  # share of the tools without a hand-written kind, see `phrasal`
    values_first: float = 0.0  # share of texts in which values stand before their names
    loose_results: float = 0.0  # share of tool results, see `results.loose_result`
    free_results: float = 0.0  # share of the loose ones, see `results.free_result`
    slips: float = 0.0  # share of the guided answers, see `structured.slipped`
    has_questions: bool = False  # any question, under a schema too, see `questions`
    unsaid: float = 0.05  # share of the answers as JSON that nothing asks for, learned as a whole
    unsaid_beside_tools: float = 0.0  # of the others, where there are tools
    unsaid_of_questions: float = 0.0  # the same, where the request is one of `questions`
    has_later_kinds: bool = False  # of tools, see `catalogue.LATER`
    has_fair_disguises: bool = False  # each request for a disguised kind shows a swapped word
    has_one_joker: bool = False  # the tool tells the joke if there is one, else the model does


@dataclass(frozen=True, slots=True)
class Lexicon:
    """One side of the split; `rng` is the only source of randomness."""

    rng: random.Random
    split: Split
    habits: Habits = Habits()
    pieces: tuple[str, ...] = ()  # the tokenizer's own, of letters only

    def __post_init__(self) -> None:
        if self.habits.piece_words and not self.pieces:
            raise ValueError("words are to be made of a tokenizer's pieces, but none are given")

    def owned(self, draw: Callable[[], str]) -> str:
        """Draws until the value is on this side of the split."""
        while is_held_out(value := draw()) is not (self.split is Split.HELD_OUT):
            pass
        return value

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def has_habit(self, share: float) -> bool:
        """Whether a draw is below the share. Draws nothing for a share of 0, so earlier phases keep
        their text."""
        return share > 0 and self.chance(share)

    def invented(self) -> str:
        """A lower-case word that is in hardly any language."""
        habits = self.habits
        if self.has_habit(habits.odd_words):
            return self.owned(lambda: odd_word(self.rng))
        if self.has_habit(habits.piece_words):
            return self.owned(lambda: piece_word(self.rng, self.pieces))
        return self.owned(lambda: syllabic_word(self.rng))

    def word(self) -> str:
        return self.invented() if self.chance(0.5) else self.owned(lambda: self.rng.choice(WORDS))

    def name(self) -> str:
        if self.chance(0.6):
            return self.invented().capitalize()
        return self.owned(lambda: self.rng.choice(NAMES))

    def full_name(self) -> str:
        return f"{self.name()} {self.invented().capitalize()}"

    def person(self) -> str:
        return self.name() if self.chance(0.6) else self.full_name()

    def city(self) -> str:
        if self.chance(0.15):
            return f"{self.rng.choice(['New', 'San', 'Port', 'Lake', 'North'])} {self.name()}"
        if self.chance(0.5):
            return self.invented().capitalize()
        return self.owned(lambda: self.rng.choice(CITIES))

    def phrase(self) -> str:
        return " ".join(self.word() for _ in range(self.rng.randint(1, 4)))

    def title(self) -> str:
        return " ".join(self.word().capitalize() for _ in range(self.rng.randint(1, 3)))

    def sentence(self) -> str:
        start = self.rng.choice(
            [
                "I will be at the",
                "Please bring the",
                "We need the",
                "See you at the",
                "Do not forget the",
                "The meeting is about the",
                "Thanks for the",
                "I am late for the",
                "Let us talk about the",
            ]
        )
        end = self.rng.choice(
            ["", " today", " tomorrow", f" at {self.time()}", f" with {self.name()}"]
        )
        return f"{start} {self.word()}{end}"

    def integer(self) -> int:
        def draw() -> str:
            return str(self.rng.randrange(10 ** self.rng.choice([1, 2, 2, 3, 3, 4, 5])))

        if self.split is Split.TRAIN and self.chance(0.15):
            return self.rng.randrange(10)
        return int(self.owned(draw))

    def count(self) -> int:
        """A whole number as it occurs in requests."""
        return int(self.owned(lambda: str(self.rng.randrange(2, 100))))

    def decimal(self) -> float:
        def draw() -> str:
            return str(
                round(
                    self.rng.uniform(0, 10 ** self.rng.choice([1, 2, 3])), self.rng.choice([1, 2])
                )
            )

        return float(self.owned(draw))

    def date(self) -> str:
        rng = self.rng
        return self.owned(
            lambda: f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        )

    def time(self) -> str:
        rng = self.rng
        return self.owned(lambda: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}")

    def email(self) -> str:
        left = self.rng.choice(["", self.invented() + "."]) + self.invented()
        return f"{left}@{self.invented()}.{self.rng.choice(DOMAINS)}"

    def code(self) -> str:
        rng = self.rng
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"

        def draw() -> str:
            head = "".join(rng.choice(letters) for _ in range(rng.randint(1, 3)))
            return f"{head}{rng.choice(['-', '', '-'])}{rng.randrange(10, 10 ** rng.randint(2, 5))}"

        return self.owned(draw)

    def ticker(self) -> str:
        rng = self.rng
        return self.owned(
            lambda: "".join(
                rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randint(3, 4))
            )
        )

    def path(self) -> str:
        suffix = self.rng.choice(["txt", "csv", "json", "pdf", "py"])
        folder = self.rng.choice(["", "/tmp/", f"/{self.invented()}/", f"{self.invented()}/"])
        return f"{folder}{self.invented()}.{suffix}"

    def phone(self) -> str:
        rng = self.rng
        return self.owned(
            lambda: f"+{rng.randint(1, 99)} {rng.randint(100, 999)} {rng.randint(1000, 9999)}"
        )
