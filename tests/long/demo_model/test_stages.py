"""Stages of a training: the same function in more layers, and the same steps after a stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from demo_model.training.batches import IGNORED, Batch
from demo_model.training.export import export
from demo_model.training.network import Llama, Shape
from demo_model.training.recipe import Recipe
from demo_model.training.stages import Lanes, Stage, grown
from demo_model.training.training import Run
from tests.long.demo_model.tiny_training import trained

GROWING = Recipe(
    shape=Shape(layers=2),
    rates=((0, 1.0), (6, 0.0)),
    batch_tokens=512,
    stages=(
        Stage(),
        Stage(start=2, repeated=(0, 1), batches=2),
        Stage(start=4, batches=2, candidates=3, is_rounded=True),
        Stage(start=5, batches=2, returned=0.4),
    ),
)


def small() -> Llama:
    """With nothing left at zero, so that every layer does something."""
    torch.manual_seed(5)
    network = Llama(Shape(layers=3, width=64, inner=96, vocabulary=50))
    for layer in network.blocks:
        torch.nn.init.normal_(layer.out, std=0.1)
        torch.nn.init.normal_(layer.down, std=0.1)
    return network


def drawn(rows: int) -> Batch:
    ids = torch.randint(50, (rows, 12))
    targets = ids.roll(-1, 1)
    targets[:, :4] = IGNORED
    return Batch(ids, targets)


def test_a_grown_network_computes_what_it_did() -> None:
    network, batch = small(), drawn(3)
    larger = grown(network, (0, 2))
    assert larger.shape.layers == 5
    assert torch.equal(
        network.hidden(batch.ids, torch.float32), larger.hidden(batch.ids, torch.float32)
    )


def test_a_grown_network_learns_in_its_new_layers() -> None:
    network = grown(small(), (1,))
    Lanes(network, Stage()).gradients([drawn(3)])
    learned = [layer.out.grad for layer in network.blocks]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in learned)


def test_two_lanes_give_the_mean_of_both_batches() -> None:
    network, batches = small(), [drawn(3), drawn(2)]
    loss = Lanes(network, Stage(batches=2)).gradients(batches)
    found = [parameter.grad for parameter in network.parameters()]
    losses, wanted = [], []
    for batch in batches:
        network.zero_grad()
        losses.append(Lanes(network, Stage()).gradients([batch]))
        wanted.append([parameter.grad for parameter in network.parameters()])
    assert loss == pytest.approx(sum(losses) / 2)
    for mean, one, other in zip(found, *wanted, strict=True):
        assert mean is not None
        assert one is not None
        assert other is not None
        torch.testing.assert_close(mean, (one + other) / 2)


@pytest.mark.parametrize("stops", [(2, 6), (3, 5, 6), (1, 2, 4, 6)])
def test_a_training_stopped_around_a_stage_goes_on_to_the_same_weights(
    tmp_path: Path, stops: tuple[int, ...]
) -> None:
    whole, parts = (
        trained(GROWING, tmp_path / "whole", 6),
        trained(GROWING, tmp_path / "parts", *stops),
    )
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_folder_has_the_layers_of_its_step(tmp_path: Path) -> None:
    for stop, layers in ((2, 2), (3, 4)):
        trained(GROWING, tmp_path / f"run{stop}", stop)
        export(Run(tmp_path / f"run{stop}"), GROWING, tmp_path / f"model{stop}")
        text = (tmp_path / f"model{stop}" / "config.json").read_text()
        assert f'"num_hidden_layers": {layers}' in text
        assert GROWING.shape_at(stop).layers == layers


def test_stages_must_rise_from_the_first_step() -> None:
    with pytest.raises(ValueError, match="stages must rise"):
        replace(GROWING, stages=(Stage(start=3),))


def test_the_hardest_rows_are_learned_from() -> None:
    network, batch = small(), drawn(7)
    losses = network.row_losses(batch.ids, batch.targets, torch.bfloat16)
    kept = Lanes(network, Stage(candidates=3)).hardest(batch)
    hardest = losses.topk(2).indices
    assert torch.equal(kept.ids, batch.ids[hardest])
    assert torch.equal(kept.targets, batch.targets[hardest])


def test_the_losses_of_rows_are_sums_of_the_loss() -> None:
    network, batch = small(), drawn(4)
    wanted = (batch.targets != IGNORED).sum()
    rows = network.row_losses(batch.ids, batch.targets, torch.float32)
    torch.testing.assert_close(
        rows.sum() / wanted, network.loss(batch.ids, batch.targets, torch.float32)
    )
