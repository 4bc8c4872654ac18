"""Greedy answers of a model folder by transformers, in batches, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from demo_model.training.chat import END, Conversation, Template


class Speaker:
    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.template = Template((folder / "chat_template.jinja").read_text())

    def answers(
        self, conversations: list[Conversation], *, max_tokens: int = 200, rows: int = 50
    ) -> list[str]:
        """One answer per conversation, in order; prompts of similar length form a batch."""
        prompts = [self.template.prompt(conversation) for conversation in conversations]
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        answers = [""] * len(prompts)
        for at in range(0, len(order), rows):
            group = order[at : at + rows]
            for index, answer in zip(
                group, self.batch([prompts[i] for i in group], max_tokens), strict=True
            ):
                answers[index] = answer
        return answers

    def batch(self, prompts: list[str], max_tokens: int) -> list[str]:
        coded = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=coded["input_ids"],
                attention_mask=coded["attention_mask"],
                max_new_tokens=max_tokens,
                do_sample=False,
            )
        answers = self.tokenizer.batch_decode(output[:, coded["input_ids"].shape[1] :])
        return [answer.split(END)[0] for answer in answers]
