"""The other families and forms of a quantization for the PyTorch runtime, for real on this CPU.

tests/engine/test_quantization.py has Llama in fp8 and Qwen3 in int4_awq. Not here: nvfp4, which
nvidia-modelopt exports on a GPU only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from build_engines.errors import BuildError
from tests.fixtures import quantized_model as quantized


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized") / "artifacts"
    shared = tmp_path_factory.getbasetemp().parent / "quantization-environments"
    quantized.share_environments(folder, shared)
    return folder


@pytest.mark.parametrize(
    ("family", "form", "cache", "matrix", "bound"),
    [
        ("qwen2", "fp8", "auto", 0.035, 0.12),
        ("phi3", "fp8", "fp8", 0.035, 0.12),
        ("qwen3_moe", "fp8", "auto", 0.035, 0.12),
        ("llama", "int4_awq", "fp8", 0.15, 0.4),
        ("qwen2", "w4a8_awq", "fp8", 0.15, 0.5),
    ],
)
def test_a_form_is_written_and_agrees_with_the_original(
    artifacts, tmp_path, family, form, cache, matrix, bound
):
    weights = quantized.write_weights(family, tmp_path / family)
    options = {"quantization": form, "kv_cache": {"dtype": cache}, "calibration": {"samples": 8}}
    quantized.build(artifacts, quantized.models(weights, **options))
    engine = artifacts / "m" / "engine"
    quantized.check_numbers(engine, weights, matrix=matrix, bound=bound)


def test_nvfp4_says_that_it_needs_a_gpu(artifacts, tmp_path):
    weights = quantized.write_weights("llama", tmp_path / "llama")
    given = quantized.models(weights, quantization="nvfp4", architecture="blackwell")
    with pytest.raises(BuildError, match=r"quantized: .*writes nvfp4 on a machine with a GPU only"):
        quantized.build(artifacts, given)
