"""The Python models' imports run one way, without cycles; type imports count, too.

Each module at the top of a model's folder, and each package in it, has a rank. It may import from
lower ranks only. Inside of a package there is no rank, but no cycle either.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.contract.test_imports import imported

REPOSITORY = Path(__file__).parents[2] / "model_repository"
MODELS = ("tokenizer", "engine", "detokenizer", "embedding")
RANKS = {
    "engine": [
        {"stats", "block_log", "grammars", "hang_watch", "parent_watch", "recent_ids"},
        {"port"},
        {"inbox", "job_loop", "lora_adapters", "sampling", "guides"},
        {
            "onnx_cpu",
            "scripted",
            "trtllm",
            "vllm_engine",
        },  # the runtimes, which do not know each other
        {"runtimes", "stream", "request_tensors"},
        {"leases"},
        {"response_writer"},
        {"metrics"},
        {"model"},
    ],
    "tokenizer": [
        {"grammars", "refusal"},
        {"admission", "guide_check", "plain_spans"},
        {"request", "prompt_cache"},
        {"prompt_encoder"},
        {"model"},
    ],
    "detokenizer": [{"token_bytes"}, {"model"}],
    "embedding": [{"encoder"}, {"onnx_graph", "static_table"}, {"model"}],
}
# Foreign libraries, and the only modules or packages that import them.
ONLY_IN = {
    "engine": {
        "onnxruntime": {"onnx_cpu"},
        "tensorrt_llm": {"trtllm"},
        "torch": {"trtllm"},
        "vllm": {"vllm_engine"},
        "xgrammar": {"grammars", "guides"},
        "triton_python_backend_utils": {"model", "stream", "leases", "request_tensors"},
    },
    "tokenizer": {
        "tokenizers": {"model", "plain_spans", "prompt_cache", "prompt_encoder"},
        "xgrammar": {"grammars", "guide_check"},
        "triton_python_backend_utils": {"model", "request"},
    },
    "detokenizer": {"triton_python_backend_utils": {"model"}},
    "embedding": {
        "onnxruntime": {"onnx_graph"},
        "tokenizers": {"encoder"},
        "triton_python_backend_utils": {"model"},
    },
}


def folder(model: str) -> Path:
    return REPOSITORY / model / "1"


def modules(model: str) -> dict[str, set[str]]:
    """Module -> all names that it imports, anywhere in it. Links count as the model's own."""
    found = {}
    for path in [*folder(model).glob("*.py"), *folder(model).glob("*/*.py")]:
        name = ".".join(path.relative_to(folder(model)).with_suffix("").parts)
        names = imported(path)
        assert not any(one.startswith(".") for one in names), f"{path} imports relatively"
        found[name.removesuffix(".__init__")] = names
    return found


def room(module: str) -> str:
    """The package of a module, or the module itself at the top of the folder."""
    return module.split(".")[0]


def ranks(model: str) -> dict[str, int]:
    return {name: rank for rank, names in enumerate(RANKS[model]) for name in names}


@pytest.mark.parametrize("model", MODELS)
def test_every_module_has_a_rank_and_every_rank_a_module(model):
    assert {room(name) for name in modules(model)} == ranks(model).keys()
    deeper = list(folder(model).rglob("*/*/*.py"))
    assert not deeper, "packages are one level deep"


@pytest.mark.parametrize("model", MODELS)
def test_imports_go_to_lower_ranks(model):
    rank = ranks(model)
    for module, names in modules(model).items():
        for other in {room(name) for name in names} & rank.keys() - {room(module)}:
            assert rank[other] < rank[room(module)], f"{module} imports {other}"


@pytest.mark.parametrize("model", MODELS)
def test_there_are_no_cycles(model):
    found = modules(model)
    graph = {module: names & found.keys() - {module} for module, names in found.items()}
    packages = {name for name in found if any(other.startswith(f"{name}.") for other in found)}
    try:
        order = TopologicalSorter(graph).static_order()
        assert len(list(order)) == len(found)
    except CycleError as error:
        pytest.fail(f"a cycle: {' -> '.join(error.args[1])}")
    for package in packages:
        assert not graph[package], f"{package}/__init__.py imports {graph[package]}"


@pytest.mark.parametrize("model", MODELS)
def test_each_foreign_library_has_its_place(model):
    for module, names in modules(model).items():
        for library in {room(name) for name in names} & ONLY_IN[model].keys():
            assert room(module) in ONLY_IN[model][library], f"{module} imports {library}"


@pytest.mark.parametrize("model", MODELS)
def test_no_installed_package_has_the_name_of_one_of_ours(model):
    """Triton puts a model's folder at the end of sys.path, so the installed one would be taken."""
    ours = {room(name) for name in modules(model)} - {"model"}
    assert not ours & packages_distributions().keys()
    assert "tensorrt_llm" not in ours, "the library is not installed here, but it is on GPUs"
