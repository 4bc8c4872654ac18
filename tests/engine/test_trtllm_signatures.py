"""The stand-in of tensorrt_llm has upstream's signatures, and a difference is named."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import tensorrt_llm
import trtllm_sampling
from trtllm_library import Library

from triton_openai.build_engines.upstream.signatures import Signatures

KNOWN = Signatures.read()
ENGINE = Path(trtllm_sampling.__file__).parent


def test_the_stand_in_is_as_the_facts_say():
    assert tensorrt_llm.__version__ == KNOWN.version
    assert list(KNOWN.differences(KNOWN.found())) == []


def test_the_facts_know_all_that_is_used():
    for target, known in KNOWN.known.items():
        assert KNOWN.used[target] <= known, target
        assert not known & KNOWN.later[target], target


def test_the_facts_have_every_parameter_that_the_runtime_sends():
    """By the source: keyword arguments of the call, and the tables beside it."""
    source = inspect.getsource(trtllm_sampling)
    call = source[source.index("sampling_params(\n") : source.index("params.bad = ")]
    sent = set(re.findall(r"^ {12}(\w+)=", call, re.MULTILINE))
    sent |= {"bad", "temperature", "top_k", "top_p", *trtllm_sampling.NEUTRAL}
    assert sent == KNOWN.used["tensorrt_llm:SamplingParams"]
    assert Library.load("pytorch").takes == KNOWN.known["tensorrt_llm:LLM.generate_async"]


@pytest.mark.parametrize(
    ("target", "change", "text", "breaks"),
    [
        ("tensorrt_llm:LLM.generate_async", {"-streaming"}, "has no 'streaming'", True),
        ("tensorrt_llm:LLM.generate_async", {"-cache_salt"}, "has no 'cache_salt' any more", False),
        ("tensorrt_llm:LLM.generate_async", {"+lookahead"}, "has 'lookahead', which is new", False),
        ("tensorrt_llm:LLM.generate_async", {"+priority"}, None, False),
        ("tensorrt_llm:LLM.shutdown", None, "is not there", True),
        (
            "tensorrt_llm.executor.result:GenerationResult attributes",
            {"-abort"},
            "has no 'abort'",
            True,
        ),
    ],
)
def test_each_difference_is_named(target, change, text, breaks):
    found = KNOWN.found()
    if change is None:
        found[target] = None
    for one in change or ():
        found[target] = found[target] | {one[1:]} if one[0] == "+" else found[target] - {one[1:]}
    differences = [(d.target, d.text, d.breaks) for d in KNOWN.differences(found)]
    assert differences == ([] if text is None else [(target, text, breaks)])


def test_what_is_not_installed_is_none():
    other = Signatures(
        version="1", known={}, later={},
        used={"nowhere:X": frozenset(), "tensorrt_llm:Nothing": frozenset()},
    )  # fmt: skip
    assert other.found() == {"nowhere:X": None, "tensorrt_llm:Nothing": None}
