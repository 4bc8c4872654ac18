"""Commands: `python -m triton_openai.build_engines.demo train | export | eval | goldens`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from triton_openai.build_engines.demo.export import export as export_folder
from triton_openai.build_engines.demo.recipe import Recipe
from triton_openai.build_engines.demo.training import Run, Trainer

MODEL = Path(__file__).with_name("model")
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
    """Trains, or goes on from the last checkpoint of the folder."""
    if threads:
        torch.set_num_threads(threads)
    trainer = Trainer(Recipe(), Run(run), torch.device(device))
    trainer.train(save_every=save_every, minutes=minutes, until=steps)


@app.command()
def export(run: Folder = RUN, model: Path = MODEL) -> None:
    """Writes the Hugging Face folder from the last checkpoint."""
    export_folder(Run(run), Recipe(), model)


@app.command("eval")
def evaluate_folder(
    model: Path = MODEL,
    count: Annotated[int, typer.Option(help="held-out prompts for each skill")] = 300,
    seed: Annotated[int, typer.Option(help="which held-out prompts")] = 7,
    threads: Threads = 0,
    record: bool = False,
    misses: Annotated[Path | None, typer.Option(help="write every wrong answer here")] = None,
) -> None:
    """Prints the figures of the model card; `--record` keeps them beside the model."""
    from triton_openai.build_engines.demo.evaluation import evaluate, table
    from triton_openai.build_engines.demo.speaker import Speaker

    if threads:
        torch.set_num_threads(threads)
    figures, wrong = evaluate(Speaker(model), count, seed=seed)
    typer.echo(table(figures))
    if record:
        shares = {figure.name: round(figure.share, 4) for figure in figures}
        (model / "figures.json").write_text(json.dumps(shares, indent=2) + "\n")
    if misses:
        lines = (
            f"{miss.prompt}\n--- wanted\n{miss.wanted}\n--- given\n{miss.given}\n====="
            for miss in wrong
        )
        misses.write_text("\n".join(lines))


@app.command()
def goldens(file: Path, model: Path = MODEL) -> None:
    """Writes the model's present answers into a file of golden prompts."""
    from triton_openai.build_engines.demo.goldens import answer_again
    from triton_openai.build_engines.demo.speaker import Speaker

    torch.set_num_threads(1)
    answer_again(file, Speaker(model))


@app.command()
def curve(run: Folder = RUN, file: Path = MODEL / "loss.png") -> None:
    """Draws the losses of a training."""
    from triton_openai.build_engines.demo.curve import draw_curve

    draw_curve(Run(run).losses(), file)


if __name__ == "__main__":
    app()
