"""The commands of the training: `python -m demo_model.training --help`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from demo_model.training.export import export as export_folder
from demo_model.training.recipe import Recipe
from demo_model.training.training import Run, Trainer

CARD = Path(__file__).resolve().parents[1]  # the model card, its figures and its curve
MODEL = CARD / "shipped"
RUN = Path("artifacts/demo-training")

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
Folder = Annotated[Path, typer.Option(help="the training's own folder: checkpoint, losses")]
Threads = Annotated[int, typer.Option(help="CPU threads; 0 means all cores")]


@app.command()
def train(
    run: Folder = RUN,
    device: str = "cpu",
    threads: Threads = 0,
    steps: Annotated[int | None, typer.Option(help="stop and save at this step")] = None,
    minutes: Annotated[float | None, typer.Option(help="stop and save after so long")] = None,
    save_every: int = 100,
) -> None:
    """Trains, or continues from the last checkpoint of the folder."""
    if threads:
        torch.set_num_threads(threads)
    trainer = Trainer(Recipe(), Run(run), torch.device(device))
    trainer.train(save_every=save_every, minutes=minutes, until=steps)


@app.command()
def export(run: Folder = RUN, model: Path = MODEL) -> None:
    """Writes the folder that is shipped from the last checkpoint."""
    export_folder(Run(run), Recipe(), model)
    complete(model)


@app.command()
def complete(model: Path = MODEL) -> None:
    """Makes the ONNX graph and the tokenizer's tables again, as after an update of their tools."""
    from demo_model.training.shipped import complete as complete_folder

    complete_folder(model, typer.echo)


@app.command("eval")
def evaluate_folder(
    model: Path = MODEL,
    count: Annotated[int, typer.Option(help="held-out prompts for each skill")] = 300,
    seed: Annotated[int, typer.Option(help="which held-out prompts")] = 7,
    threads: Threads = 0,
    record: bool = False,
    misses: Annotated[Path | None, typer.Option(help="write every wrong answer here")] = None,
) -> None:
    """Prints the figures of the model card; `--record` writes them beside the card."""
    from demo_model.training.evaluation import evaluate, table
    from demo_model.training.speaker import Speaker

    if threads:
        torch.set_num_threads(threads)
    figures, wrong = evaluate(Speaker(model), count, seed=seed)
    typer.echo(table(figures))
    if record:
        shares = {figure.name: round(figure.share, 4) for figure in figures}
        (CARD / "figures.json").write_text(json.dumps(shares, indent=2) + "\n")
    if misses:
        lines = (
            f"{miss.prompt}\n--- wanted\n{miss.wanted}\n--- given\n{miss.given}\n====="
            for miss in wrong
        )
        misses.write_text("\n".join(lines))


@app.command()
def goldens(file: Path, model: Path = MODEL) -> None:
    """Writes the model's present answers into a file of golden prompts."""
    from demo_model.training.goldens import answer_again
    from demo_model.training.speaker import Speaker

    torch.set_num_threads(1)
    answer_again(file, Speaker(model))


@app.command()
def curve(run: Folder = RUN, file: Path = CARD / "loss.png") -> None:
    """Draws the losses of a training."""
    from demo_model.training.curve import draw_curve

    draw_curve(Run(run).losses(), file)


if __name__ == "__main__":
    app()
