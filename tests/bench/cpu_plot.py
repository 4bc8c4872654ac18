"""Draws docs/images/llama_cpp.svg: bars of each server, for each number of streams. For cpu.py."""

from __future__ import annotations

from collections.abc import Mapping

WIDTH, PANEL_HEIGHT, LEGEND, BAR, TOP, FLOOR = 960, 230, 30, 34, 55, 180
COLORS = ("#76b900", "#888888")
Row = Mapping[str, float]
# Key of a row -> title.
PANELS = {
    "tokens_per_s": "tokens a second (more is better)",
    "ttft_p50_ms": "time to first token, p50, ms (less is better)",
}


def drawn(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """rows: case -> server -> figures. Cases with a schema are left out."""
    plain = {case: servers for case, servers in rows.items() if "schema" not in case}
    names = next(iter(plain.values())).keys()
    height = LEGEND + PANEL_HEIGHT * len(PANELS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<!-- Made by tests.bench.cpu. -->",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for number, (name, color) in enumerate(zip(names, COLORS, strict=True)):
        x = 20 + 140 * number
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{x + 18}" y="23" fill="#222">{name}</text>')
    for number, (key, title) in enumerate(PANELS.items()):
        figures = {case: [row[key] for row in servers.values()] for case, servers in plain.items()}
        parts += _panel(figures, title, top=LEGEND + PANEL_HEIGHT * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(figures: Mapping[str, list[float]], title: str, *, top: int) -> list[str]:
    most = max(value for values in figures.values() for value in values)
    floor, group = top + FLOOR, (WIDTH - 40) / len(figures)
    bar = min(BAR, group / 2 - 4)
    parts = [f'<text x="20" y="{top + 25}" font-weight="bold" fill="#222">{title}</text>']
    for number, (case, values) in enumerate(figures.items()):
        middle = 20 + group * (number + 0.5)
        for value, color, x in zip(values, COLORS, (middle - bar, middle), strict=True):
            height = (FLOOR - TOP) * value / most
            parts.append(
                f'<rect x="{x:.0f}" y="{floor - height:.0f}" width="{bar:.0f}" '
                f'height="{height:.0f}" fill="{color}"/>'
            )
            parts.append(_centered(f"{value:.0f}", x + bar / 2, floor - height - 4, size=11))
        for row, text in enumerate(case.split(", ")):
            parts.append(_centered(text, middle, floor + 16 + 15 * row, size=11))
    return parts


def _centered(text: str, x: float, y: float, *, size: int) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="middle" '
        f'fill="#222">{text}</text>'
    )
