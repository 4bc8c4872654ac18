"""Prompts with the answers that the shipped model gives to them; the tests hold it to these."""

from __future__ import annotations

import json
from pathlib import Path

from triton_openai.build_engines.demo.chat import Conversation, assistant
from triton_openai.build_engines.demo.speaker import Speaker


def read(file: Path) -> list[Conversation]:
    """The file's rows: messages, tools and, once answered, the answer."""
    return [
        Conversation(
            (*row["messages"], assistant(row.get("answer", ""))), tuple(row.get("tools", ()))
        )
        for row in json.loads(file.read_text())
    ]


def answer_again(file: Path, speaker: Speaker) -> None:
    """Puts the model's present answers into the file."""
    answers = speaker.answers(read(file))
    rows = json.loads(file.read_text())
    for row, answer in zip(rows, answers, strict=True):
        row["answer"] = answer
    file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
