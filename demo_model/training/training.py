"""The training loop. It can be resumed, and equal machines give equal weights."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn
from tqdm import tqdm

from demo_model.training.batches import Batch, Encoder, chunk
from demo_model.training.chat import Template
from demo_model.training.headstart import head_start
from demo_model.training.network import Llama
from demo_model.training.recipe import Recipe
from demo_model.training.stages import Lanes, Stage, grown, rounded
from demo_model.training.tokenizer import train_tokenizer


@dataclass(frozen=True, slots=True)
class Run:
    """A folder that holds one training: tokenizer, checkpoint and the losses so far."""

    folder: Path

    @property
    def tokenizer_file(self) -> Path:
        return self.folder / "tokenizer.json"

    @property
    def checkpoint_file(self) -> Path:
        return self.folder / "checkpoint.pt"

    @property
    def losses_file(self) -> Path:
        return self.folder / "losses.jsonl"

    def tokenizer(self, seed: int) -> Tokenizer:
        if not self.tokenizer_file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            train_tokenizer(seed).save(str(self.tokenizer_file))
        return Tokenizer.from_file(str(self.tokenizer_file))

    def checkpoint(self) -> dict[str, Any] | None:
        if not self.checkpoint_file.exists():
            return None
        loaded: dict[str, Any] = torch.load(
            self.checkpoint_file, map_location="cpu", weights_only=True
        )
        return loaded

    def losses(self) -> list[tuple[int, float]]:
        rows = [json.loads(line) for line in self.losses_file.read_text().splitlines()]
        return [(row["step"], row["loss"]) for row in rows]

    def forget_after(self, step: int) -> None:
        """Drops the losses of steps after the checkpoint."""
        rows = self.losses_file.read_text().splitlines()[:step]
        self.losses_file.write_text("".join(f"{row}\n" for row in rows))


class Trainer:
    """`step` counts the updates; it and the recipe determine everything else."""

    def __init__(self, recipe: Recipe, run: Run, device: torch.device) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.run, self.device = recipe, run, device
        self.encoder = Encoder(run.tokenizer(recipe.seed), Template())
        self.network = Llama(recipe.shape)
        head_start(self.network)
        self.network.to(device)
        self.step, self.chunk, self.offset, self.chunk_step = 0, 0, 0, 0
        self.shipped: dict[str, torch.Tensor] = {}  # the weights that were rounded last
        self.optimizers: list[torch.optim.Optimizer] = []
        self.stage = recipe.stages[0]
        self.enter(self.stage)
        if (saved := run.checkpoint()) is not None:
            self.restore(saved)

    def enter(self, stage: Stage) -> None:
        if stage.is_rounded:
            self.network = rounded(self.network)
            self.shipped = {name: each.clone() for name, each in self.network.state_dict().items()}
            self.chunk, self.offset = stage.start, 0
        if stage.returned:
            with torch.no_grad():
                for name, parameter in self.network.named_parameters():
                    parameter.lerp_(self.shipped[name], stage.returned)
        is_new = not self.optimizers or stage.repeated or stage.batches != self.stage.batches
        if is_new or stage.is_rounded or stage.returned:
            self.network = grown(self.network, stage.repeated)
            self.optimizers = optimizers(self.network, self.recipe, stage.batches)
        self.stage, self.lanes = stage, Lanes(self.network, stage)

    def restore(self, saved: dict[str, Any]) -> None:
        for stage in self.recipe.entered(saved["step"])[1:]:
            self.enter(stage)
        self.network.load_state_dict(saved["network"])
        self.shipped = saved["shipped"]
        for optimizer, state in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.step, self.chunk, self.offset = saved["step"], saved["chunk"], saved["offset"]
        self.chunk_step = saved["chunk_step"]
        self.run.forget_after(self.step)

    def save(self) -> None:
        state = {
            "network": self.network.state_dict(),
            "shipped": self.shipped,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "chunk": self.chunk,
            "offset": self.offset,
            "chunk_step": self.chunk_step,
        }
        partial = self.run.checkpoint_file.with_suffix(".part")
        torch.save(state, partial)
        partial.replace(self.run.checkpoint_file)

    def batches(self) -> Iterator[Batch]:
        """Yields batches endlessly, from the step of the last checkpoint."""
        recipe = self.recipe
        while True:
            if self.offset == 0:
                self.chunk_step = self.step
            number = self.chunk
            seed = recipe.seed * 1_000_003 + number
            mixture = recipe.mixture(self.chunk_step)
            candidates = recipe.entered(self.chunk_step + 1)[-1].candidates
            drawn = chunk(self.encoder, mixture, seed, recipe.batch_tokens, candidates)
            for batch in drawn[self.offset :]:
                self.offset += 1
                yield batch
                if self.chunk != number:
                    break  # a stage began with other text
            else:
                self.chunk, self.offset = number + 1, 0

    def update(self, batches: Iterator[Batch]) -> float:
        if (stage := self.recipe.entered(self.step + 1)[-1]) is not self.stage:
            self.enter(stage)
        loss = self.lanes.gradients([next(batches) for _ in range(stage.batches)])
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        rate = self.recipe.rate(self.step)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["full_rate"] * rate
        self.lanes.step(self.optimizers)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.step += 1
        return loss

    def train(self, *, save_every: int, minutes: float | None, until: int | None = None) -> None:
        """Trains to the recipe's last step, to `until`, or for the given minutes, and saves."""
        last = min(self.recipe.steps, until or self.recipe.steps)
        end = time.monotonic() + 60 * minutes if minutes else float("inf")
        bar = tqdm(total=self.recipe.steps, initial=self.step, unit="step", mininterval=5)
        batches = self.batches()
        with self.run.losses_file.open("a", buffering=1) as losses:
            while self.step < last and time.monotonic() < end:
                loss = self.update(batches)
                losses.write(json.dumps({"step": self.step, "loss": round(loss, 4)}) + "\n")
                bar.update()
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                if self.step % save_every == 0:
                    self.save()
        self.save()


def optimizers(network: Llama, recipe: Recipe, parts: int) -> list[torch.optim.Optimizer]:
    """Muon, in `parts` parts, for the matrices of the layers; AdamW for embedding and norms."""
    layers = dict(network.layers.named_parameters())
    matrices = [parameter for parameter in layers.values() if parameter.dim() == 2]
    norms = [parameter for parameter in network.parameters() if parameter.dim() == 1]
    made: list[torch.optim.Optimizer] = [
        torch.optim.Muon(
            matrices[part::parts],
            lr=recipe.muon_rate,
            weight_decay=recipe.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        for part in range(parts)
    ]
    made.append(
        torch.optim.AdamW(
            [network.embedding, *norms], lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=0.0
        )
    )
    for optimizer in made:
        for group in optimizer.param_groups:
            group["full_rate"] = group["lr"]
    return made
