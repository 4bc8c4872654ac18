"""Draws the losses of a training as a PNG: a thin line per step, a bold one for the mean."""

from __future__ import annotations

import math
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT, MARGIN = 960, 540, 60
INK, RAW, MEAN, GRID = "#222222", "#b9cde5", "#1f5fa8", "#e4e4e4"
DECADES = (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)

Point = tuple[float, float]


def draw_curve(losses: list[tuple[int, float]], file: Path) -> None:
    """`losses`: at least two pairs (step, loss). The loss axis is logarithmic."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    canvas = ImageDraw.Draw(image)
    font = ImageFont.load_default(14)
    last = losses[-1][0]
    smooth = averaged(losses)
    low = math.log(min(loss for _, loss in smooth) / 1.5)
    high = math.log(max(loss for _, loss in losses))

    def place(step: float, loss: float) -> Point:
        height = (math.log(max(loss, math.exp(low))) - low) / (high - low)
        return MARGIN + step / last * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - height * (
            HEIGHT - 2 * MARGIN
        )

    for level in DECADES:
        if low < math.log(level) < high:
            canvas.line([place(0, level), place(last, level)], fill=GRID)
            canvas.text((12, place(0, level)[1] - 8), f"{level:g}", fill=INK, font=font)
    for part in range(5):
        x, _ = place(last * part / 4, 1)
        canvas.text((x - 16, HEIGHT - MARGIN + 8), str(last * part // 4), fill=INK, font=font)
    canvas.line([place(*point) for point in losses], fill=RAW)
    canvas.line([place(*point) for point in smooth], fill=MEAN, width=3)
    canvas.text((MARGIN, 20), "loss on the assistant's tokens, by step", fill=INK, font=font)
    image.save(file, optimize=True)


def averaged(losses: list[tuple[int, float]], weight: float = 0.98) -> list[tuple[int, float]]:
    mean, smooth = losses[0][1], []
    for step, loss in losses:
        mean = weight * mean + (1 - weight) * loss
        smooth.append((step, mean))
    return smooth
