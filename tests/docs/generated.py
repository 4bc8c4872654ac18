"""The pages in docs/generated/: commands, metrics, tests and attacks, as the code has them.

`python -m tests.docs.generated` writes them; `make doc-tables` calls it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

from proxy.api.openapi.responses import HEADERS, Header
from proxy.cli import ACCOUNTS, RUNNING, START, app
from proxy.models.registry import ModelInfo
from proxy.telemetry.endpoint_metrics import EndpointMetrics
from proxy.telemetry.metrics import Metrics
from tests.docs.pages import ROOT
from tests.long.hostile.attack import ANY, FINE, REFUSED, Attack
from tests.long.hostile.catalogue import GROUPS

FOLDER = ROOT / "docs" / "generated"
ENGINE_METRICS = ROOT / "model_repository" / "engine" / "1" / "metrics.py"
HEAD = "<!-- Made by `make doc-tables` from {}. -->\n\n# {}\n\n{}\n"
# Folder of tests/ -> what runs there. In the order of the page.
LEVELS = {
    "server": "A real tritonserver, the ensemble and the proxy",
    "compat": "The same, called by OpenAI's SDKs",
    "api": "The proxy over a scripted engine",
    "engine": "The models of the ensemble, without Triton",
    "contract": "Both sides of an interface, compared",
    "unit": "One module at a time",
    "deploy": "Images, manifests, alerts and dashboards",
    "docs": "The documentation",
    "demo_model": "The demo model",
    "bench": "The benchmarks' own tests",
    "long": "Long: `make test-long`",
}
# Which answers have a header, where it is no status.
WHERE = {
    "limits": "every answer to a caller with limits",
    "generation": "an answer that a model gave",
    "key": "an answer to a request with an `Idempotency-Key`",
    "/v1/messages": "every answer of `/v1/messages`",
}
MARKS = re.compile(r"([\\*_\[\]<>|`])")


def plain(text: str) -> str:
    """Markdown that shows this text in a cell of a table."""
    return MARKS.sub(r"\\\1", text)


def cell(text: str) -> str:
    """Markdown stays, on one line."""
    return " ".join(text.split()).replace("|", "\\|")


def table(*rows: tuple[str, ...]) -> str:
    """The first row is the head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def metrics() -> str:
    source = "the descriptions in proxy/telemetry and model_repository/engine/1/metrics.py"
    intro = (
        "The first table is of `/metrics` of the proxy, the second of Triton's metrics port.\n"
        "[Operations](../operations.md#metrics) says how to read them. Each engine metric has the "
        "label `model`."
    )
    return "\n".join(
        (
            HEAD.format(source, "Metrics", intro),
            "## Of the proxy\n",
            table(("metric", "type", "labels", "meaning"), *_of_the_proxy()),
            "## Of the engine\n",
            table(("metric", "meaning"), *_of_the_engine()),
        )
    )


def _of_the_proxy() -> Iterator[tuple[str, ...]]:
    metrics = Metrics()
    registry = metrics.registry
    EndpointMetrics(registry, metrics.generations.leave_uncharged)
    for each in registry._collector_to_names:
        if not hasattr(each, "_labelnames"):
            continue
        name = each._name + ("_total" if each._type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in each._labelnames)
        yield f"`{name}`", each._type, labels, cell(each._documentation)
    for family in ModelInfo(SimpleNamespace(every_card=list, unseen=set)).collect():
        labels = ", ".join(f"`{label}`" for label in family._labelnames)
        yield f"`{family.name}`", family.type, labels, cell(family.documentation)


def _of_the_engine() -> Iterator[tuple[str, ...]]:
    """By the text: the module can be imported in Triton only."""
    for node in ast.walk(ast.parse(ENGINE_METRICS.read_text())):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = [
                (key, value.elts[0])
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(value, ast.Tuple)
            ]
        elif isinstance(node, ast.Call) and len(node.args) > 2:
            pairs = [(node.args[1], node.args[2])]
        for name, text in pairs:
            said = name.value if isinstance(name, ast.Constant) else None
            if str(said).startswith("engine_") and isinstance(text, ast.Constant):
                yield f"`{said}`", cell(str(text.value))


def commands() -> str:
    intro = (
        "What `--help` says of each command. An option wins over its variable; every other\n"
        "[setting](settings.md) is a variable only. `triton-openai` is\n"
        "`.venv/bin/triton-openai` after `make serve`."
    )
    parts = [HEAD.format("proxy/cli.py", "Commands", intro)]
    group: Any = typer.main.get_command(app)
    for panel in (START, RUNNING, ACCOUNTS, "Hidden"):
        parts.append(f"## {panel}\n")
        for name, command in group.commands.items():
            own = "Hidden" if command.hidden else getattr(command, "rich_help_panel", None)
            if own == panel:
                parts += _command(f"triton-openai {name}", command)
    return "\n".join(parts)


def _command(path: str, command: Any) -> Iterator[str]:
    """One command, or a group and the commands in it. command: of typer's own copy of click."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    words = " ".join(
        _names(each)[0] if each.required else f"[{_names(each)[0]}]" for each in arguments
    )
    yield f"### `{f'{path} {words}'.strip()}`\n"
    yield f"{cell(command.help or '')}\n"
    rows = [_option(each) for each in command.params if getattr(each, "help", None)]
    if rows:
        yield table(("argument or option", "meaning"), *rows)
    for name, each in getattr(command, "commands", {}).items():
        yield from _command(f"{path} {name}", each)


def _names(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        return [parameter.metavar or parameter.name.upper()]
    return [*parameter.opts, *parameter.secondary_opts]


def _option(parameter: Any) -> tuple[str, str]:
    default = parameter.show_default if isinstance(parameter.show_default, str) else None
    if default is None and not isinstance(parameter.default, (bool, type(None))):
        default = str(parameter.default)
    names = ", ".join(f"`{name}`" for name in _names(parameter))
    meaning = cell(parameter.help).replace("<", "&lt;")
    return names, meaning + (f" Default: `{default}`." if default else "")


def headers() -> str:
    intro = (
        "The headers of answers, except for those that HTTP itself needs. Pages of `CORS_ORIGINS`\n"
        "may read all but the last two. Requests have [their own](../api.md#ids-and-traces)."
    )
    head = ("header", "of", "meaning")
    rows = ((f"`{name}`", _of(each), cell(each.description)) for name, each in HEADERS.items())
    title = HEAD.format("proxy/api/openapi/components.json", "Headers", intro)
    return f"{title}\n{table(head, *rows)}"


def _of(header: Header) -> str:
    """The answers that have it, in words."""
    return ", ".join(WHERE.get(of, of) for of in header.of)


def verification() -> str:
    intro = (
        "Each test file, with the first sentence of its docstring. No test here runs on a GPU: what"
        "\nwas tried instead is in [GPU models](../gpu_models.md#what-ran-where)."
    )
    parts = [HEAD.format("the tests' docstrings", "What the tests verify", intro)]
    for folder, what in LEVELS.items():
        files = sorted((ROOT / "tests" / folder).rglob("test_*.py"))
        rows = [(f"`{path.relative_to(ROOT)}`", _first_sentence(path)) for path in files]
        parts.append(f"## {what}\n")
        parts.append(table(("file", "what it verifies"), *rows))
    return "\n".join(parts)


def _first_sentence(path: Path) -> str:
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
    return cell(re.split(r"(?<=\.)\s", f"{text} ")[0])


def attacks() -> str:
    count = sum(len(each) for each in GROUPS.values())
    intro = (
        f"{count} attacks, each sent beside a stream of 20 ms a token. `make hostile` runs them\n"
        "and prints what each cost; the test suite fails if one exceeds what this table allows:\n"
        "the CPU time and the memory of the proxy, and the largest gap in the other stream."
    )
    parts = [HEAD.format("tests/long/hostile", "Attacks", intro)]
    head = ("attack", "right answers", "CPU s", "MB", "gap ms")
    for group, every in GROUPS.items():
        parts.append(f"## {group.capitalize()}\n")
        parts.append(table(head, *map(_attack_row, every)))
    return "\n".join(parts)


def _attack_row(attack: Attack) -> tuple[str, ...]:
    return (
        plain(attack.name),
        _statuses(attack.answers),
        f"{attack.cpu_s:g}",
        f"{attack.growth_mb:g}",
        f"{attack.gap_s * 1000:g}",
    )


def _statuses(answers: frozenset[int]) -> str:
    """A word for the sets that most attacks have; 4xx for other refusals."""
    named = {ANY: "200 or refused", REFUSED: "refused", FINE: "200"}
    if answers in named:
        return named[answers]
    if answers > REFUSED:
        rest = sorted(answers - REFUSED)
        return ", ".join(["refused", *map(_status, rest)])
    return ", ".join(map(_status, sorted(answers)))


def _status(status: int) -> str:
    return {0: "closed", -1: "no answer"}.get(status, str(status))


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "metrics.md": metrics,
    "headers.md": headers,
    "verification.md": verification,
    "attacks.md": attacks,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
