"""The stages of the training: more layers, more batches per step, compiled layers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from demo_model.training.batches import Batch
from demo_model.training.network import Llama

# Without instructions for it, bfloat16 is slower than float32.
PRECISION = torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Starts at the step `start`; new layers or other batches start with new optimizers."""

    start: int = 0
    repeated: tuple[int, ...] = ()  # layers that are followed by a copy of themselves
    batches: int = 1  # per step, each on its own thread
    candidates: int = 1  # rows drawn for each row that is learned: the hardest one is
    is_compiled: bool = False  # the layers, by torch.compile: it needs a C++ compiler
    is_rounded: bool = False  # begins with the weights as they are shipped, and with other text
    returned: float = 0.0  # how far it first goes back to the weights of the last rounded stage


def grown(network: Llama, repeated: tuple[int, ...]) -> Llama:
    """The same function in more layers: a copied layer adds nothing before it is trained."""
    order = [at for at in range(network.shape.layers) for _ in range(1 + (at in repeated))]
    larger = Llama(replace(network.shape, layers=len(order)))
    with torch.no_grad():
        larger.embedding.copy_(network.embedding)
        larger.norm.copy_(network.norm)
        for at, (layer, source) in enumerate(zip(larger.blocks, order, strict=True)):
            layer.load_state_dict(network.blocks[source].state_dict())
            if at and order[at - 1] == source:
                nn.init.zeros_(layer.out)
                nn.init.zeros_(layer.down)
    return larger.to(network.embedding.device)


def rounded(network: Llama) -> Llama:
    """The weights in half precision, as `export` writes them."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.to(torch.float16))
    return network


class Lanes:
    """Runs the batches of a step in parallel; the sums do not depend on the threads' order."""

    def __init__(self, network: Llama, stage: Stage) -> None:
        self.network, self.count, self.candidates = network, stage.batches, stage.candidates
        threads = max(1, torch.get_num_threads() // stage.batches)
        self.pool = ThreadPoolExecutor(
            stage.batches, initializer=torch.set_num_threads, initargs=(threads,)
        )
        if stage.is_compiled:
            for layer in network.blocks:
                layer.compile(dynamic=True, options={"cpp.threads": threads})

    def gradients(self, batches: list[Batch]) -> float:
        """Writes the mean gradients of the batches to the parameters and returns the mean loss."""
        if self.count == 1:
            (batch,) = batches
            loss = self.loss(self.hardest(batch))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()
        found = list(self.pool.map(self.gradient, batches))
        for at, parameter in enumerate(self.network.parameters()):
            parameter.grad = torch.stack([parts[at] for _, parts in found]).mean(0)
        return sum(loss for loss, _ in found) / self.count

    def gradient(self, batch: Batch) -> tuple[float, tuple[Tensor, ...]]:
        loss = self.loss(self.hardest(batch))
        return loss.item(), torch.autograd.grad(loss, list(self.network.parameters()))

    def hardest(self, batch: Batch) -> Batch:
        """The rows that the network finds least likely, one of `candidates` each."""
        rows = len(batch.ids)
        if self.candidates == 1 or rows < self.candidates:
            return batch
        parts = zip(
            batch.ids.chunk(self.candidates), batch.targets.chunk(self.candidates), strict=True
        )
        device = self.network.embedding.device
        with torch.no_grad():
            losses = [
                self.network.row_losses(ids.to(device), targets.to(device), PRECISION)
                for ids, targets in parts
            ]
        kept = torch.cat(losses).topk(rows // self.candidates).indices.cpu()
        return Batch(batch.ids[kept], batch.targets[kept])

    def loss(self, batch: Batch) -> Tensor:
        device = self.network.embedding.device
        return self.network.loss(batch.ids.to(device), batch.targets.to(device), PRECISION)

    def step(self, optimizers: list[torch.optim.Optimizer]) -> None:
        if self.count == 1:
            for optimizer in optimizers:
                optimizer.step()
        else:
            list(self.pool.map(lambda optimizer: optimizer.step(), optimizers))
