"""What is declared of an engine: its version and kind decide."""

from __future__ import annotations

import pytest
from packaging.version import Version

from build_engines import triton_models
from build_engines.engine_limits import (
    ALTERNATIVES,
    BLOCKS,
    EVERY_KIND,
    GUIDES,
    IMAGES,
    LOG_PROBS,
    LORA,
    PENALTIES,
    QUEUE_TIME,
    RESUME,
    TrtllmEngine,
)

CHANGES = PENALTIES | {"min_p", "bad_words", "min_tokens"}
TORCH_BEFORE_1_3 = CHANGES | {"seed", "priority"}


def missing(version="1.2.1", backend="pytorch", **fields) -> frozenset[str]:
    fields = {"has_adapters": True, **fields}
    return TrtllmEngine(version=Version(version), backend=backend, **fields).missing()


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ALTERNATIVES | {"priority"}),
        ({"version": "1.0.0"}, ALTERNATIVES | {"priority", "cache_salt"}),
        ({"sampler": "TorchSampler"}, TORCH_BEFORE_1_3),
        (
            {"sampler": "TorchSampler", "version": "1.1.0rc1"},
            TORCH_BEFORE_1_3 | ALTERNATIVES,
        ),
        ({"sampler": "TorchSampler", "version": "1.2.0rc1"}, TORCH_BEFORE_1_3),
        ({"sampler": "TorchSampler", "version": "1.3.0rc24"}, TORCH_BEFORE_1_3),
        ({"sampler": "TorchSampler", "version": "1.3.0rc25"}, set()),
        ({"version": "1.3.0rc24"}, ALTERNATIVES | {"priority"}),
        ({"version": "1.3.0rc25"}, set()),
        ({"version": "1.4.0rc1"}, set()),
        ({"backend": "tensorrt"}, ALTERNATIVES | LOG_PROBS | {"priority"}),
        ({"backend": "cpp"}, set()),
        ({"has_adapters": False}, ALTERNATIVES | LORA | {"priority"}),
        ({"backend": "cpp", "has_adapters": False}, set()),
        ({"backend": "cpp", "guides": "off"}, GUIDES),
        ({"backend": "cpp", "end_tokens": 3}, {"min_tokens"}),
        ({"is_speculative": True}, ALTERNATIVES | LOG_PROBS | TORCH_BEFORE_1_3),
        ({"is_speculative": True, "version": "1.3.0rc25"}, ALTERNATIVES | LOG_PROBS | CHANGES),
        ({"is_speculative": True, "backend": "cpp"}, ALTERNATIVES | LOG_PROBS),
    ],
)
def test_what_is_missing(fields, names):
    is_cpp = fields.get("backend") == "cpp"
    assert missing(**fields) == names | (set() if is_cpp else IMAGES | QUEUE_TIME | RESUME | BLOCKS)


def test_only_an_engine_with_events_reports_its_cache():
    assert missing() - missing(reports_blocks=True) == BLOCKS


@pytest.mark.parametrize(
    ("version", "sampler", "most"),
    [
        ("1.2.1", "TRTLLMSampler", 1),
        ("1.1.0", "TorchSampler", 1),
        ("1.2.1", "TorchSampler", 20),
        ("1.3.0rc25", "TRTLLMSampler", None),
    ],
)
def test_one_log_prob_is_requested_unless_alternatives_are_served(version, sampler, most):
    engine = TrtllmEngine(version=Version(version), backend="pytorch", sampler=sampler)
    assert engine.max_log_probs == most


def test_the_names_are_tensors_of_the_contract():
    config = triton_models.config_of("ensemble")
    tensors = {row.name for row in (*config.input, *config.output)}
    everything = missing(
        "1.0.0", sampler="TorchSampler", end_tokens=2, guides="off", has_adapters=False
    )
    assert everything | missing(backend="tensorrt") <= tensors


@pytest.mark.parametrize(
    ("backend", "guides", "lacks"),
    [
        ("pytorch", "xgrammar", set()),
        ("pytorch", "llguidance", {"ebnf_grammar", "structural_tag"}),
        ("tensorrt", "xgrammar", {"structural_tag"}),
        ("cpp", "xgrammar", {"structural_tag"}),
    ],
)
def test_guides_are_of_the_kinds_that_upstreams_grammar_matchers_take(backend, guides, lacks):
    kinds = TrtllmEngine(version=Version("1.2.1"), backend=backend, guides=guides).guide_kinds
    assert set(EVERY_KIND) - set(kinds) == lacks
