"""doctor --gpu: what it says with a TensorRT-LLM, without one, and with another one."""

from __future__ import annotations

from pathlib import Path

from build_engines.triton_models import TEMPLATES
from build_engines.upstream.signatures import Signatures
from proxy.operate.doctor import gpu

KNOWN = Signatures.read()
WHOLE = {target: KNOWN.known.get(target, names) for target, names in KNOWN.used.items()}
CONFIG = Path("/app/config.pbtxt")


def test_without_the_package_it_says_so():
    check = gpu.package(None, KNOWN.version)
    assert not check.ok
    assert check.detail == "tensorrt_llm is not installed"
    assert "trtllm-python-py3" in check.remedy


def test_the_known_one_is_well():
    assert gpu.package("1.2.1", KNOWN.version).ok
    checks = gpu.signatures(KNOWN, WHOLE)
    assert len(checks) == len(KNOWN.used)
    assert all(check.ok for check in checks)
    config = (TEMPLATES / "tensorrt_llm" / "config.pbtxt").read_text()
    assert gpu.cpp_backend(config, CONFIG).ok


def test_another_ones_differences_are_told_and_only_those_that_break_it_fail():
    target = "tensorrt_llm:LLM.generate_async"
    changed = WHOLE[target] - {"streaming", "cache_salt"} | {"speed"}
    (broken,) = [c for c in gpu.signatures(KNOWN, {**WHOLE, target: changed}) if not c.ok]
    assert broken.name == "tensorrt_llm.LLM.generate_async"
    assert broken.detail == (
        "has no 'streaming'; has no 'cache_salt' any more; has 'speed', which is new"
    )
    harmless = gpu.signatures(KNOWN, {**WHOLE, target: WHOLE[target] | {"speed"}})
    assert all(check.ok for check in harmless)
    assert any("speed" in check.detail for check in harmless)


def test_parameters_of_a_cpp_backend_that_came_or_went_are_told_and_do_no_harm():
    """As enable_trt_overlap did, which stands in some versions' template and not in others'."""
    config = (TEMPLATES / "tensorrt_llm" / "config.pbtxt").read_text()
    known, here = 'key: "multi_block_mode"', 'key: "enable_trt_overlap"'
    check = gpu.cpp_backend(config.replace(known, here), CONFIG)
    assert check.ok
    assert check.detail == "parameter enable_trt_overlap is new; parameter multi_block_mode is gone"


def test_a_cpp_backend_that_differs_fails_and_one_that_is_absent_is_said():
    config = (TEMPLATES / "tensorrt_llm" / "config.pbtxt").read_text()
    other = gpu.cpp_backend(config.replace('"stop"', '"halt"'), CONFIG)
    assert not other.ok
    assert "input stop is gone" in other.detail
    retyped = gpu.cpp_backend(config.replace("TYPE_UINT64", "TYPE_INT64"), CONFIG)
    assert not retyped.ok
    absent = gpu.cpp_backend(None, CONFIG)
    assert absent.ok
    assert str(CONFIG) in absent.detail
