"""The Python models of model_repository/ as Triton sees them: their folder on the path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

for role in ("tokenizer", "engine", "detokenizer", "embedding"):
    sys.path.append(str(Path(__file__).parents[2] / "model_repository" / role / "1"))
sys.path.append(str(Path(__file__).parents[2] / "model_repository" / "tensorrt_llm" / "tokenizer"))
for double in ("backend", "packages"):
    sys.path.append(str(Path(__file__).parents[1] / "doubles" / double))

import pytest  # noqa: E402

from tests.fixtures.families import COMMON, build_families, forget_oracles  # noqa: E402
from tests.fixtures.guide_info import VOCAB_SIZE, DemoVocabulary  # noqa: E402
from tests.fixtures.running import ARTIFACTS, alone  # noqa: E402


@pytest.fixture(scope="session")
def artifacts() -> Iterator[Path]:
    """Kept between runs: only the first one builds."""
    with alone():
        folder = build_families(ARTIFACTS / "families", COMMON)
    yield folder
    forget_oracles()


@pytest.fixture(scope="session")
def vocabulary() -> DemoVocabulary:
    return DemoVocabulary()


@pytest.fixture(scope="module")
def compiler(vocabulary):
    from guides.compiler import GuideCompiler

    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=2)
    yield compiler
    compiler.close()


@pytest.fixture
def mask():
    from guides.mask import GuideMask

    mask = GuideMask(VOCAB_SIZE, threads=2)
    yield mask
    mask.close()


@pytest.fixture
def runtime(tmp_path):
    """runtime(script, **parameters) -> a tensorrt_llm runtime on the stand-in; it must not die."""
    from tests.fixtures import trtllm_runtime

    started, deaths = [], []

    def start(script=None, died=deaths.append, **parameters):
        started.append(trtllm_runtime.start(tmp_path, script or {}, died, **parameters))
        return started[0]

    yield start
    for one in started:
        one.close()
    assert not deaths
