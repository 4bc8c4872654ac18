"""Names with an underscore belong to whoever defines them. Exceptions have a reason here."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from hpack.hpack import encode_integer
from prometheus_client import Histogram

from proxy.telemetry.generation_metrics import observe, observe_counts

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("proxy", "build_engines", "model_repository")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
# Python documents these all the same.
DOCUMENTED = {"os._exit", "sys._current_frames", "member._value_"}
ENGINE = "model_repository/engine/1"
ALLOWED = {
    # adds values by the bucket; prometheus_client takes them one by one only
    "proxy/telemetry/generation_metrics.py": {"_buckets", "_sum", "_upper_bounds"},
    # engine plans have no public loader, and the queues' lengths no public name
    f"{ENGINE}/trtllm/library.py": {"_executor", "_tensorrt_engine"},
    # token ids for bad words; the public field takes texts
    f"{ENGINE}/trtllm/sampling_params.py": {"_bad_word_ids"},
    # of its own class, which a base class of ours gives it
    "proxy/language/syntax/reasoning.py": {"_reader"},
}


def private_uses(tree: ast.AST, own: set[str], inherited: set[str]) -> Iterator[str]:
    """Private names that neither this file defines nor, on `self`, a class of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            is_ours = node.attr in own or (node.attr in inherited and is_self(node.value))
            if not is_ours and ast.unparse(node) not in DOCUMENTED:
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from filter(is_private, names)


def defined(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                found.add(node.attr)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
    return found


def is_self(node: ast.AST) -> bool:
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Name) and name.id in ("self", "cls", "super")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_private_names_of_others_are_not_used():
    trees = {path: ast.parse(path.read_text()) for path in SOURCES}
    own = {path: defined(tree) for path, tree in trees.items()}
    inherited = set().union(*own.values())
    used = {
        str(path.relative_to(ROOT)): names
        for path, tree in trees.items()
        if (names := set(private_uses(tree, own[path], inherited)))
    }
    assert used == ALLOWED


def test_a_histogram_of_prometheus_client_still_has_what_we_add_to():
    histogram = Histogram("a", "b", ("model",), buckets=(1, 2), registry=None).labels("demo")
    observe_counts(histogram, [1, 0, 2], 7.5)
    for value in (0.5, 1, 1.5, 9):
        observe(histogram, value)
    found = {(one.name, one.labels.get("le")): one.value for one in histogram.collect()[0].samples}
    assert found[("a_bucket", "1.0")] == 1 + 2
    assert found[("a_bucket", "2.0")] == 1 + 3
    assert found[("a_bucket", "+Inf")] == 3 + 4
    assert found[("a_sum", None)] == 7.5 + 12


def test_hpack_still_has_its_encoder_of_integers():
    """It is public by name, in a module that hpack does not document."""
    assert list(inspect.signature(encode_integer).parameters) == ["integer", "prefix_bits"]
    assert encode_integer(1337, 5) == bytearray(b"\x1f\x9a\x0a")  # RFC 7541, C.1.2
