"""Trainings of a few steps with the shipped tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch

from demo_model.training.recipe import Recipe
from demo_model.training.training import Run, Trainer

TOKENIZER = Path(__file__).parents[3] / "demo_model" / "shipped" / "tokenizer.json"


def trained(recipe: Recipe, folder: Path, *stops: int) -> dict[str, torch.Tensor]:
    """The weights after the last of the steps at which it was stopped and taken up again."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    for stop in stops:
        trainer = Trainer(recipe, Run(folder), torch.device("cpu"))
        trainer.train(save_every=1, minutes=None, until=stop)
    saved = Run(folder).checkpoint()
    assert saved is not None
    weights: dict[str, torch.Tensor] = saved["network"]
    return weights
