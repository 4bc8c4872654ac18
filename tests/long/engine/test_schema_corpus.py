"""The JSON Schema test suite (MIT): what models write under each schema's grammar conforms.

SCHEMA_ANSWERS says how many are drawn for each schema and model; `make schemas` draws 20.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jsonschema_rs
import numpy as np
import pytest
from xgrammar import GrammarMatcher

from build_engines.build import build_all
from build_engines.facts import Facts
from build_engines.models_file import ModelsFile, OnnxEntry
from guides.compiler import GuideCompiler, GuideError
from guides.mask import GuideMask
from guides.state import GuideState
from onnx_cpu.runtime import OnnxRuntime
from port import GenerationInput, Guide, Job, SamplingParams
from proxy.domain.errors import RequestError
from proxy.language.structured.keywords import unenforced
from proxy.language.structured.schema import SchemaLimits, checked
from tests.doubles.sink import KeptTokens
from tests.fixtures.guide_info import DEMO, VOCAB_SIZE, walk
from tests.fixtures.stack import HANG_S
from token_bytes import TokenBytes

CASES = json.loads((Path(__file__).parent / "json_schema_cases.json").read_text())
ANSWERS = int(os.environ.get("SCHEMA_ANSWERS", "1"))
TOKENS_AT_MOST = 120
ROWS = 8


@pytest.fixture(scope="module")
def compiler(vocabulary):
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=1)
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def outcomes(compiler) -> dict[str, list]:
    """The cases by what becomes of them: refused by us, unsupported by xgrammar, loose (keywords
    are named), or held. guide: what we make of the schema.
    """
    found: dict[str, list] = {"refused": [], "unsupported": [], "loose": [], "held": []}
    for case in CASES:
        try:
            text = checked(case["schema"], "schema", SchemaLimits())
            compiler.compile(Guide("json_schema", text)).result()
        except RequestError:
            found["refused"].append(case)
            continue
        except GuideError:
            found["unsupported"].append(case)
            continue
        kind = "loose" if unenforced(case["schema"]) else "held"
        found[kind].append({**case, "guide": text})
    return found


def is_valid(validator: jsonschema_rs.Validator, text: str) -> bool:
    """A number that no float holds is JSON, too: it counts as the largest one."""
    largest = sys.float_info.max
    value = json.loads(text, parse_float=lambda said: max(-largest, min(float(said), largest)))
    return validator.is_valid(value)


def assert_valid(answers: dict[int, list[str]], cases: list[dict]) -> None:
    for number, texts in answers.items():
        case = cases[number]
        validator = jsonschema_rs.validator_for(case["schema"], offline=True)
        wrong = [text for text in texts if not is_valid(validator, text)]
        assert wrong == [], (case["file"], case["desc"])


def test_every_text_that_the_grammar_lets_end_conforms(outcomes, compiler, vocabulary):
    mask, answers = GuideMask(VOCAB_SIZE, threads=1), {}
    for number, case in enumerate(outcomes["held"]):
        compiled = compiler.compile(Guide("json_schema", case["guide"])).result()
        random = np.random.default_rng(number)
        walks = [walk(GuideState(compiled), mask, vocabulary, random) for _ in range(4 * ANSWERS)]
        answers[number] = [text.decode() for text in walks if text is not None]
    assert sum(map(len, answers.values())) > 0.9 * 4 * ANSWERS * len(answers)
    assert_valid(answers, outcomes["held"])


def _text(tokens: list[bytes]) -> str:
    """As the proxy decodes it: xgrammar lets half a surrogate pair through, which is no UTF-8."""
    return b"".join(tokens).decode(errors="replace")


def generated(folder: Path, cases: list[dict]) -> dict[int, list[str]]:
    """What the model says that comes to an end in time, by number of the case."""
    facts, table = Facts.read(folder / "facts.json"), TokenBytes.load(folder / "token_bytes.npz")
    runtime = OnnxRuntime.load(
        folder,
        {
            "public_name": "demo",
            "threads": "1",
            "context_length": str(facts.context_length),
            "end_ids": ",".join(map(str, facts.end_ids)),
            "max_rows": str(ROWS),
            "max_step_tokens": "64",
            "prefill_stall_ms": "0",
            "exact_resume_tokens": "512",
            "kv_cache_bytes": str(20_000 * facts.kv_token_bytes),
        },
    )
    sinks = []
    for number, case in enumerate(cases):
        for seed in range(ANSWERS):
            wanted = GenerationInput(
                prompt_ids=[5, 6, 7],
                max_tokens=TOKENS_AT_MOST,
                sampling=SamplingParams(temperature=1.0, seed=seed),
                guide=Guide("json_schema", case["guide"]),
            )
            sinks.append((number, KeptTokens()))
            runtime.submit(Job(f"{number}-{seed}", wanted, sinks[-1][1]))
    answers: dict[int, list[str]] = {number: [] for number in range(len(cases))}
    for number, sink in sinks:
        assert sink.is_over.wait(HANG_S)
        assert sink.end in ("stop", "length"), sink.message
        if sink.end == "stop":
            answers[number].append(_text(table.lookup(sink.ids)))
    runtime.close()
    return answers


@pytest.mark.parametrize("model", ["demo", "random"])
def test_what_models_generate_under_such_a_schema_conforms(outcomes, artifacts, model):
    if model == "demo":
        entry = OnnxEntry(weights=DEMO)
        build_all(ModelsFile(models={"demo": entry}), artifacts, say=lambda _: None)
    answers = generated(artifacts / ("demo" if model == "demo" else "llama"), outcomes["held"])
    assert sum(map(bool, answers.values())) > 0.3 * len(answers)
    assert_valid(answers, outcomes["held"])


def test_most_schemas_of_plain_types_are_held(outcomes):
    """The suite is made of corner cases: every keyword alone, without a type."""
    assert len(outcomes["held"]) >= 100


def test_what_is_refused_refers_to_other_documents_names_a_draft_of_its_own_or_has_no_value(
    outcomes,
):
    for case in outcomes["refused"]:
        is_elsewhere = any(one in json.dumps(case["schema"]) for one in ("$ref", "$dynamicRef"))
        is_other = is_elsewhere or "metaschema" in case["schema"]["$schema"]
        assert is_other or not case["valid"], case["desc"]


def test_what_the_grammar_lets_through_against_a_schema_is_named(compiler):
    """The invalid examples of the suite: a grammar that takes one must have a keyword named."""
    for case in CASES:
        try:
            text = checked(case["schema"], "schema", SchemaLimits())
            compiled = compiler.compile(Guide("json_schema", text)).result()
        except (RequestError, GuideError):
            continue
        for example in case["invalid"]:
            matcher = GrammarMatcher(compiled.grammar)
            said = json.dumps(example, ensure_ascii=False)
            is_taken = matcher.accept_string(said) and matcher.is_completed()
            assert not is_taken or unenforced(case["schema"]), (case["file"], case["desc"], said)
