"""The stand-in of tensorrt_llm has upstream's signatures, and a difference is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tensorrt_llm
from packaging.version import Version

from build_engines.upstream.signatures import NEWER, OLDER, Signatures, record_of
from port import GenerationInput, Guide, SamplingParams
from trtllm.library import Library
from trtllm.sampling_params import SamplingTranslator

KNOWN, KNOWN_LATER = Signatures.read(OLDER), Signatures.read(NEWER)
ALL_OF_IT = SamplingParams(
    temperature=0.5,
    top_k=3,
    top_p=0.9,
    min_p=0.1,
    seed=1,
    repetition_penalty=1.1,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    logit_bias=((7, 1.0),),
    bad_words=((8, 9),),
    min_tokens=2,
    log_probs=2,
)


def test_the_stand_in_is_as_the_facts_say():
    assert tensorrt_llm.__version__ == KNOWN.version
    assert list(KNOWN.differences(KNOWN.found())) == []


@pytest.mark.parametrize("record", [OLDER, NEWER])
def test_the_facts_know_all_that_is_used(record):
    recorded = Signatures.read(record)
    for target, known in recorded.known.items():
        assert recorded.used[target] <= known, target
        assert not known & recorded.later[target], target


def test_each_version_is_compared_with_its_record():
    """A later version must have what its record has, and the earlier one need not."""
    assert [record_of(Version(v)) for v in ("1.0.0", "1.3.0rc24")] == [OLDER, OLDER]
    assert [record_of(Version(v)) for v in ("1.3.0rc25", "1.4.0")] == [NEWER, NEWER]
    later = {d.text for d in KNOWN_LATER.differences(KNOWN.found())}
    assert "has no 'priority' any more" in later
    assert not any(d.breaks for d in KNOWN_LATER.differences(KNOWN.found()))


def test_the_facts_have_every_parameter_that_the_runtime_sends():
    sent: set[str] = set()

    def recorded(**arguments):
        sent.update(arguments)
        return tensorrt_llm.SamplingParams(**arguments)

    library = Library.load("pytorch")
    translator = SamplingTranslator(
        library=replace(library, sampling_params=recorded),
        adapters={},
        backend="pytorch",
        end_ids=(2,),
        logits_size=100,
        max_log_probs=20,
        has_guides=True,
    )
    params = translator.translate(
        GenerationInput(prompt_ids=[5], max_tokens=9, sampling=ALL_OF_IT, guide=Guide("regex", "a"))
    )
    assert params.bad == []  # set when the object is made: it has no place in the arguments
    sent.remove("prompt_ignore_length")  # sent only to versions that have it
    assert sent | {"bad"} == KNOWN.used["tensorrt_llm:SamplingParams"]
    assert library.generate_arguments == KNOWN.known["tensorrt_llm:LLM.generate_async"]


@pytest.mark.parametrize(
    ("target", "change", "text", "breaks"),
    [
        ("tensorrt_llm:LLM.generate_async", {"-streaming"}, "has no 'streaming'", True),
        ("tensorrt_llm:LLM.generate_async", {"-cache_salt"}, "has no 'cache_salt' any more", False),
        ("tensorrt_llm:LLM.generate_async", {"+lookahead"}, "has 'lookahead', which is new", False),
        ("tensorrt_llm:LLM.generate_async", {"+priority"}, None, False),
        ("tensorrt_llm:LLM attributes", None, "is not there", True),
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
