"""Writes a record of build_engines/ from upstream's source files.

usage: python -m tests.upstream.record RECORD FOLDER   each file at the path that sources.json gives

RECORD: a key of sources.json, such as classes_1.3. There, each file has its repository and commit,
what dates it, and what FOLDER holds of it: a "script" is the file itself; a "transcript" has its
declarations without help texts, docstrings and bodies, written down by hand. Only facts are
recorded, never source text.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.upstream.arguments import arguments_of, plugin_arguments_of
from tests.upstream.classes import aliases_of, fields_of

SOURCES = Path(__file__).with_name("sources.json")
RECORDS = Path(__file__).parents[2] / "build_engines" / "upstream"
TOOLS = RECORDS.parent / "gpu" / "legacy" / "tools.json"
WIDTH = 100


def main(name: str, folder: Path) -> None:
    sources = json.loads(SOURCES.read_text(encoding="utf-8"))[name]
    own = {"tools": _tools, "references": _references}
    record = _vllm if name.startswith("vllm_") else own.get(name, _classes)
    path = TOOLS if name == "tools" else RECORDS / f"{name}.json"
    path.write_text(f"{_text(record(folder, sources))}\n", encoding="utf-8")


def _tools(folder: Path, sources: dict[str, Any]) -> dict[str, Any]:
    """Tool -> its sources and arguments."""
    return {
        tool: {
            "sources": files,
            "arguments": [row for file in files for row in _arguments(_tree(folder, file), file)],
        }
        for tool, files in sources.items()
    }


def _arguments(tree: ast.Module, file: dict[str, Any]) -> list[dict[str, Any]]:
    return plugin_arguments_of(tree) if file["path"].endswith("plugin.py") else arguments_of(tree)


def _classes(folder: Path, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Class -> its facts, with the number of its source; alias -> its type."""
    found: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    for number, file in enumerate(sources):
        tree = _tree(folder, file)
        aliases |= aliases_of(tree)
        found |= {name: {"source": number, **facts} for name, facts in fields_of(tree).items()}
    return {"sources": sources, "aliases": aliases, "classes": found}


VLLM = ("AsyncEngineArgs", "EngineArgs", "SamplingParams", "StructuredOutputsParams")


def _vllm(folder: Path, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """The types of the fields of VLLM, and of the methods and aliases that they use.

    vLLM makes its configurations of dictionaries in EngineArgs.__post_init__; those it does so
    have the type dict here.
    """
    trees = [_tree(folder, file) for file in sources]
    classes = {
        name: {
            "bases": facts["bases"],
            "fields": {field: {"type": row["type"]} for field, row in facts["fields"].items()},
        }
        for tree in trees
        for name, facts in fields_of(tree).items()
        if name in VLLM
    }
    methods = {
        f"{node.name}.{item.name}": [one.arg for one in (*item.args.args, *item.args.kwonlyargs)]
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
        and f"{node.name}.{item.name}" in VLLM_METHODS
    }
    fields = classes["EngineArgs"]["fields"]
    used = {name for row in fields.values() for name in _names(row["type"])}
    aliases = {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in used
    }
    for name in _made_of_dictionaries(trees, fields):
        aliases[name] = "dict[str, Any]"
    return {
        "product": "vLLM", "sources": sources, "aliases": dict(sorted(aliases.items())),
        "methods": methods, "classes": classes,
    }  # fmt: skip


VLLM_METHODS = ("AsyncLLM.from_engine_args", "AsyncLLM.generate", "RequestOutput.__init__")


def _names(kind: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(kind)) if isinstance(node, ast.Name)}


def _made_of_dictionaries(trees: list[ast.Module], fields: dict[str, Any]) -> set[str]:
    """Names of the classes of fields that `isinstance(self.field, dict)` checks."""
    found = set()
    for tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Name(id="isinstance"),
                    args=[
                        ast.Attribute(value=ast.Name(id="self"), attr=field),
                        ast.Name(id="dict"),
                    ],
                ) if field in fields:
                    found |= {name for name in _names(fields[field]["type"]) if "onfig" in name}
    return found


def _references(folder: Path, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Upstream's own record of its API: tests/unittest/api_stability."""
    return {
        "/".join(Path(file["path"]).parts[-2:]).removesuffix(".yaml"): {
            "source": file,
            **yaml.safe_load((folder / file["path"]).read_text(encoding="utf-8")),
        }
        for file in sources
    }


def _text(value: Any, indent: int = 0) -> str:
    """JSON in which whatever fits into a line has one."""
    line = json.dumps(value, ensure_ascii=False)
    if indent + len(line) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return line
    margin, inner = " " * indent, indent + 2
    if isinstance(value, list):
        rows = [_text(item, inner) for item in value]
        brackets = "[]"
    else:
        rows = [f"{json.dumps(key)}: {_text(item, inner)}" for key, item in value.items()]
        brackets = "{}"
    body = ",\n".join(f"{margin}  {row}" for row in rows)
    return f"{brackets[0]}\n{body}\n{margin}{brackets[1]}"


def _tree(folder: Path, file: dict[str, Any]) -> ast.Module:
    return ast.parse((folder / file["path"]).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
