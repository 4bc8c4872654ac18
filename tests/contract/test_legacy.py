"""Engine plans and NVIDIA's C++ backend can be deleted in one commit: FOLDERS, and rows in LEGACY.

TensorRT-LLM 1.3.0rc20 is the last version with them, see docs/gpu_models.md.
"""

from __future__ import annotations

import re

from tests.contract.test_imports import ROOT, imported

FOLDERS = ("build_engines/gpu/legacy/", "model_repository/tensorrt_llm/")
FILES = ("proxy/triton/cpp_backend.py",)
# The only importers of these folders and files: what each of them takes from there.
IMPORTERS = {
    "build_engines/gpu/llm_args.py": "a plan's speculation",
    "build_engines/gpu/options.py": "the sections that only plans have",
    "build_engines/gpu/recipe.py": "steps, reasons against a plan, and the notice",
    "build_engines/models_file.py": "the rules",
    "build_engines/role_parameters.py": "the C++ backend's parameters",
    "model_repository/tokenizer/1/model.py": "the C++ backend's tensors",
    "proxy/operate/doctor/gpu.py": "the comparison with an image's config.pbtxt",
    "proxy/triton/dialects/own.py": "the finish reason that the C++ backend leaves out",
}
# Further files with a row, a branch or a value for them.
LEGACY = {
    *IMPORTERS,
    "build_engines/engine_limits.py",
    "build_engines/gpu/adapter.py",
    "build_engines/gpu/assembly.py",
    "build_engines/gpu/memory.py",
    "build_engines/triton_models.py",
    "model_repository/engine/1/trtllm/library.py",
    "proxy/operate/triton_server/ranks.py",
    "proxy/triton/client.py",
    "proxy/triton/tensors.py",
}
IMPORTED = ("build_engines.gpu.legacy", "proxy.triton.cpp_backend", "executor_inputs")
NAMES = re.compile(
    r'engine [!=]= "plan"|Literal\["pytorch", "plan"\]|Literal\["engine", "tensorrt_llm"\]'
    r'|"cpp"|"tensorrt"|"tensorrtllm"|is_cpp|executor_end_ids'
)


def sources() -> dict[str, str]:
    """The text of each module outside the folders, by its path."""
    folders = ("build_engines", "model_repository", "proxy")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    return {n: text for n, text in found.items() if not n.startswith((*FOLDERS, *FILES))}


def test_only_the_named_places_import_the_folders():
    found = {n for n in sources() if any(i.startswith(IMPORTED) for i in imported(ROOT / n))}
    assert found == IMPORTERS.keys()


def test_only_the_named_files_know_plans_or_the_cpp_backend():
    found = {name for name, text in sources().items() if NAMES.search(text)}
    assert found | IMPORTERS.keys() == LEGACY
