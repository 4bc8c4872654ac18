"""The onnx runtime: its thread and its folders. What its scheduler does is in test_scheduler.py."""

from __future__ import annotations

import threading

import pytest

from build_engines.build import build_all, is_built
from build_engines.errors import BuildError
from build_engines.models_file import ModelsFile, OnnxEntry, OnnxOptions
from onnx_cpu.decoder import DecoderSpec, OnnxDecoder, UnservableModel
from port import GenerationInput, Job
from tests.doubles.sink import KeptTokens
from tests.fixtures.families import COMMON
from tests.fixtures.onnx_runtimes import (
    GREEDY,
    assert_greedy_tokens_are_the_oracles,
    assert_the_tables_bytes_are_the_tokenizers_decode,
    generate,
    runtime,
)
from tests.fixtures.stack import HANG_S, eventually


@pytest.mark.parametrize("family", COMMON)
def test_greedy_tokens_are_the_oracles(artifacts, family):
    assert_greedy_tokens_are_the_oracles(artifacts / family)


@pytest.mark.parametrize("family", COMMON)
def test_the_tables_bytes_are_the_tokenizers_decode(artifacts, family):
    assert_the_tables_bytes_are_the_tokenizers_decode(artifacts / family)


def test_a_cancel_ends_the_running_and_the_waiting_job(artifacts):
    running = runtime(artifacts / "llama", max_rows="1")
    begun = threading.Event()
    first, second, third = KeptTokens(lambda count: begun.set()), KeptTokens(), KeptTokens()
    wanted = GenerationInput(prompt_ids=[5], max_tokens=4000, sampling=GREEDY)
    for request_id, sink in (("a", first), ("b", second), ("c", third)):
        running.submit(Job(request_id, wanted, sink))
    assert begun.wait(HANG_S)
    assert running.cancel("b")
    assert second.is_over.wait(HANG_S)
    assert second.end == "cancelled"
    assert not second.ids
    assert running.cancel("a")
    assert first.is_over.wait(HANG_S)
    assert first.end == "cancelled"
    eventually(lambda: third.ids, 5, "the next one runs")
    assert not running.cancel("nobody")
    assert running.cancel("a"), "it has ended: the shell need not remember the stop"
    running.close()
    assert third.end == "cancelled"


def test_a_job_whose_sink_breaks_does_not_take_the_runtime_with_it(artifacts):
    def explode(count: int) -> None:
        raise RuntimeError("pipe is gone")

    running = runtime(artifacts / "llama")
    broken = KeptTokens(explode)
    wanted = GenerationInput(prompt_ids=[5], max_tokens=3, sampling=GREEDY)
    running.submit(Job("a", wanted, broken))
    assert broken.is_over.wait(HANG_S)
    assert "pipe is gone" in broken.message
    assert len(generate(running, [5], 3).ids) == 3
    running.close()


def test_a_folder_that_cannot_be_served_says_why(tmp_path):
    with pytest.raises(UnservableModel, match=r"genai_config\.json"):
        DecoderSpec.read(tmp_path)
    (tmp_path / "genai_config.json").write_text('{"model": {"decoder": {}}}')
    with pytest.raises(UnservableModel, match="inputs"):
        OnnxDecoder(tmp_path, threads=1, rows=1, context_length=8)


def test_a_changed_option_or_weight_makes_a_model_stale(artifacts):
    entry = OnnxEntry(weights=artifacts / "weights" / "llama", onnx=OnnxOptions(precision="fp32"))
    assert is_built("llama", entry, artifacts)
    quantized = entry.model_copy(update={"onnx": OnnxOptions()})
    assert not is_built("llama", quantized, artifacts)
    assert not is_built("llama", entry.model_copy(update={"context_length": 64}), artifacts)
    config = artifacts / "weights" / "llama" / "generation_config.json"
    before = config.read_bytes()
    config.write_bytes(before + b"\n")
    assert not is_built("llama", entry, artifacts)
    config.write_bytes(before)


def test_weights_that_are_no_model_are_named_with_the_builders_words(tmp_path):
    (tmp_path / "w").mkdir()
    options = OnnxOptions(precision="fp32")
    models = ModelsFile(models={"m": OnnxEntry(weights=tmp_path / "w", onnx=options)})
    with pytest.raises(BuildError, match=r"could not convert .*config\.json"):
        build_all(models, tmp_path, say=print)
