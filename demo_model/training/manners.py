"""Short system prompts that set the form of the answer: upper case, or one word."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from demo_model.training.about import about
from demo_model.training.chat import Conversation, system
from demo_model.training.lexicon import Lexicon
from demo_model.training.smalltalk import FACTS, dialogue, introduction, talk, worn

UPPER = (
    "Answer in upper case.|Always answer in upper case.|Reply in capital letters.|Use upper case only.|Answer in capitals."
    "|Write everything in capital letters.|Please answer in upper case letters.|ANSWER IN UPPER CASE.|Respond in all caps."
).split("|")
ONE_WORD = (
    "Answer with one word.|Answer in one word.|Reply with a single word.|Use one word only.|Always answer with one word."
    "|Give one-word answers.|Respond with exactly one word.|Please answer with one word only."
).split("|")
NEUTRAL = (
    "You are a helpful assistant.|You are a friendly assistant.|Be polite.|Answer in whole sentences.|You are a chat bot."
    "|You are a helpful AI assistant.|Be kind.|Help the user.|Answer the question.|You are the demo model.|Be concise."
    "|You are a helpful, respectful and honest assistant."
).split("|")


def chat(lexicon: Lexicon) -> Conversation:
    """Small talk and questions about the project, one to three turns."""
    head = [system(lexicon.rng.choice(NEUTRAL))] if lexicon.chance(0.35) else []
    if lexicon.chance(0.15):
        return Conversation((*head, *introduction(lexicon)))
    count = lexicon.rng.choice([1, 1, 2, 3])
    turns = [about(lexicon) if lexicon.chance(0.35) else talk(lexicon) for _ in range(count)]
    return Conversation((*head, *dialogue(turns)))


def manner(lexicon: Lexicon) -> Conversation:
    rng = lexicon.rng
    if lexicon.chance(0.5):
        turns = []
        for _ in range(rng.randint(1, 2)):
            question, _, word = rng.choice(FACTS)
            turns.append((worn(lexicon, question), word))
        return Conversation((system(rng.choice(ONE_WORD)), *dialogue(turns)))
    turns = [
        (question, answer.upper())
        for question, answer in (upper_turn(lexicon) for _ in range(rng.randint(1, 2)))
    ]
    return Conversation((system(rng.choice(UPPER)), *dialogue(turns)))


def upper_turn(lexicon: Lexicon) -> tuple[str, str]:
    while len((pair := talk(lexicon))[1]) > 60:
        pass
    return pair
