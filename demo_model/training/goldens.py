"""Prompts with the recorded answers of the shipped model, which a test compares."""

from __future__ import annotations

import json
from pathlib import Path

from demo_model.training.chat import Conversation, assistant
from demo_model.training.speaker import Speaker


def read(file: Path) -> list[Conversation]:
    """The rows of the file: messages, tools and, if recorded, the answer."""
    return [
        Conversation(
            (*row["messages"], assistant(row.get("answer", ""))), tuple(row.get("tools", ()))
        )
        for row in json.loads(file.read_text())
    ]


def answer_again(file: Path, speaker: Speaker) -> None:
    """Records the model's present answers in the file."""
    answers = speaker.answers(read(file))
    rows = json.loads(file.read_text())
    for row, answer in zip(rows, answers, strict=True):
        row["answer"] = answer
    file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
