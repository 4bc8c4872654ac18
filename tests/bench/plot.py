"""Bars of several ways side by side, as a PNG."""

from __future__ import annotations

from pathlib import Path


def draw_bars(title: str, unit: str, groups: dict[str, dict[str, float]], file: Path) -> None:
    """`groups`: label below -> (way -> value)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ways = list(dict.fromkeys(way for values in groups.values() for way in values))
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    width = 0.8 / len(ways)
    for number, way in enumerate(ways):
        places = [place + number * width for place in range(len(groups))]
        axes.bar(places, [values.get(way, 0) for values in groups.values()], width, label=way)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(groups))], list(groups))
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
