"""The onnx runtime: its thread and its folders. What its scheduler does is in test_scheduler.py."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

from onnx_cpu.decoder import DecoderSpec, OnnxDecoder, UnservableModel
from onnx_cpu.runtime import OnnxRuntime
from port import GenerationInput, Job, SamplingParams
from tests.doubles.sink import KeptTokens
from tests.fixtures.families import greedy
from tests.fixtures.random_model import FAMILIES
from tests.fixtures.stack import eventually
from token_bytes import TokenBytes
from triton_openai.build_engines.build import build_all, is_built
from triton_openai.build_engines.errors import BuildError
from triton_openai.build_engines.facts import Facts
from triton_openai.build_engines.models_file import ModelsFile, OnnxEntry

GREEDY = SamplingParams(temperature=0)


def runtime(folder: Path, **changed: str) -> OnnxRuntime:
    facts = Facts.read(folder / "facts.json")
    parameters = {
        "threads": "1",
        "context_length": str(facts.context_length),
        "end_ids": ",".join(map(str, facts.end_ids)),
        "max_rows": "4",
        "max_step_tokens": "64",
        "prefill_stall_ms": "0",
        "kv_cache_bytes": str(10_000 * facts.kv_token_bytes),
    }
    return OnnxRuntime.load(folder, {**parameters, **changed})


def generate(running: OnnxRuntime, prompt: list[int], max_tokens: int) -> KeptTokens:
    sink = KeptTokens()
    wanted = GenerationInput(prompt_ids=prompt, max_tokens=max_tokens, sampling=GREEDY)
    running.submit(Job("r", wanted, sink))
    assert sink.is_over.wait(30)
    return sink


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_the_oracles(artifacts, family):
    folder = artifacts / family
    running = runtime(folder)
    random = np.random.default_rng(0)
    for length in (1, 63, 64, 65, 300):
        prompt = random.integers(3, 250, length).tolist()
        sink = generate(running, prompt, 30)
        assert sink.ids == greedy(folder, tuple(prompt), 30)
        assert sink.end == ("stop" if len(sink.ids) < 30 else "length")
    running.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tables_bytes_are_the_tokenizers_decode(artifacts, family):
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(artifacts / family / "tokenizer.json"))
    table = TokenBytes.load(artifacts / family / "token_bytes.npz")
    random = np.random.default_rng(1)
    for _ in range(200):
        ids = random.integers(0, backend.get_vocab_size(), 20).tolist()
        text = b"".join(table.lookup(ids)).decode(errors="replace")
        assert text == backend.decode(ids, skip_special_tokens=True)
    assert table.lookup([-1, 10**6]) == [b"", b""]


def test_a_cancel_ends_the_running_and_the_waiting_job(artifacts):
    running = runtime(artifacts / "llama", max_rows="1")
    begun = threading.Event()
    first, second, third = KeptTokens(lambda count: begun.set()), KeptTokens(), KeptTokens()
    wanted = GenerationInput(prompt_ids=[5], max_tokens=4000, sampling=GREEDY)
    for request_id, sink in (("a", first), ("b", second), ("c", third)):
        running.submit(Job(request_id, wanted, sink))
    assert begun.wait(10)
    assert running.cancel("b")
    assert second.is_over.wait(10)
    assert second.end == "cancelled"
    assert not second.ids
    assert running.cancel("a")
    assert first.is_over.wait(10)
    assert first.end == "cancelled"
    eventually(lambda: third.ids, 5, "the next one runs")
    assert not running.cancel("nobody")
    assert not running.cancel("a")
    running.close()
    assert third.end == "cancelled"


def test_a_job_whose_sink_breaks_does_not_take_the_runtime_with_it(artifacts):
    def explode(count: int) -> None:
        raise RuntimeError("pipe is gone")

    running = runtime(artifacts / "llama")
    broken = KeptTokens(explode)
    wanted = GenerationInput(prompt_ids=[5], max_tokens=3, sampling=GREEDY)
    running.submit(Job("a", wanted, broken))
    assert broken.is_over.wait(10)
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
    entry = OnnxEntry(weights=artifacts / "weights" / "llama")
    assert is_built("llama", entry, artifacts)
    assert not is_built("llama", entry.model_copy(update={"context_length": 64}), artifacts)
    config = artifacts / "weights" / "llama" / "generation_config.json"
    before = config.read_bytes()
    config.write_bytes(before + b"\n")
    assert not is_built("llama", entry, artifacts)
    config.write_bytes(before)


def test_a_folder_that_is_onnx_already_is_served_as_it_is(artifacts, tmp_path):
    models = ModelsFile(models={"m": OnnxEntry(weights=artifacts / "llama" / "engine")})
    said: list[str] = []
    build_all(models, tmp_path, say=said.append)
    assert "as it is" in said[0]
    ours, theirs = runtime(tmp_path / "m"), runtime(artifacts / "llama")
    assert generate(ours, [5, 6], 20).ids == generate(theirs, [5, 6], 20).ids
    ours.close()
    theirs.close()


def test_weights_that_are_not_there_are_named(tmp_path):
    models = ModelsFile(models={"m": OnnxEntry(weights=tmp_path / "nowhere")})
    with pytest.raises(BuildError, match=r"the weights folder .*nowhere does not exist"):
        build_all(models, tmp_path, say=print)


def test_weights_that_are_no_model_are_named_with_the_builders_words(tmp_path):
    (tmp_path / "w").mkdir()
    models = ModelsFile(models={"m": OnnxEntry(weights=tmp_path / "w")})
    with pytest.raises(BuildError, match=r"could not convert .*config\.json"):
        build_all(models, tmp_path, say=print)


def test_ten_thousand_requests_with_random_cancels_leave_nothing_behind(artifacts):
    running = runtime(artifacts / "llama", max_rows="16")
    random = np.random.default_rng(3)
    process = psutil.Process()

    def run(count: int) -> int:
        """So many requests, 64 at a time at most; the process's memory after them, in bytes."""
        gate, sinks = threading.Semaphore(64), []
        for number in range(count):
            gate.acquire()
            leaves_after = int(random.integers(1, 12)) if random.random() < 0.5 else None
            sinks.append(submit(number, leaves_after, gate.release))
        for sink in sinks:
            assert sink.is_over.wait(30)
        stats = running.stats
        eventually(lambda: not (stats.kv_row_bytes or stats.waiting), 5, "it is idle")
        return process.memory_info().rss

    def submit(number: int, leaves_after: int | None, over) -> KeptTokens:
        request_id = str(number)

        def leave(count: int) -> None:
            if count == leaves_after:
                running.cancel(request_id)

        sink = KeptTokens(leave, over=over)
        prompt = random.integers(3, 250, int(random.integers(1, 60))).tolist()
        wanted = GenerationInput(
            prompt_ids=prompt, max_tokens=int(random.integers(1, 16)), priority=number % 3
        )
        running.submit(Job(request_id, wanted, sink))
        return sink

    before = run(2_000)  # caches fill up
    after = run(8_000)
    stats = running.stats
    assert stats.rows_decoding == stats.rows_prefilling == stats.waiting == stats.kv_row_bytes == 0
    assert not any(running.cancel(str(number)) for number in range(8_000))
    assert after - before < 20_000_000
    running.close()
