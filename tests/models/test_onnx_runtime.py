"""The onnx runtime against onnxruntime-genai's own Generator, for three families of models.

The folders go through `build` as a user's own would.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from onnx_decoder import DecoderSpec, OnnxDecoder, UnservableModel
from onnx_runtime import OnnxRuntime
from port import GenerationInput, Job
from token_bytes import TokenBytes

from build_engines.build import build_all, is_built
from build_engines.errors import BuildError
from build_engines.facts import Facts
from build_engines.models_file import ModelEntry, ModelsFile
from tests.fixtures.random_model import make
from tests.fixtures.stack import eventually

FAMILIES = ("llama", "qwen2", "phi3")
CHUNK = 16


class Kept:
    """A sink that keeps what it is given; `after` is called with the number of tokens so far."""

    def __init__(self, after=lambda count: None) -> None:
        self.ids: list[int] = []
        self.end: str | None = None
        self.is_over = threading.Event()
        self._after = after

    def tokens(self, ids, finish) -> None:
        assert self.end is None
        self.ids += ids
        self._after(len(self.ids))
        if finish is not None:
            self._finish(finish)

    def fail(self, message) -> None:
        self._finish(message)

    def cancelled(self) -> None:
        self._finish("cancelled")

    def is_abandoned(self) -> bool:
        return False

    def _finish(self, how: str) -> None:
        self.end = how
        self.is_over.set()


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("families")
    entries = {}
    for family in FAMILIES:
        make(family, folder / "weights" / family)
        entries[family] = ModelEntry(weights=folder / "weights" / family)
    said: list[str] = []
    build_all(ModelsFile(models=entries), folder, say=said.append)
    assert len(said) == 3 * len(FAMILIES)
    build_all(ModelsFile(models=entries), folder, say=said.append)
    assert len(said) == 3 * len(FAMILIES), "a second build does nothing"
    return folder


def runtime(folder: Path) -> OnnxRuntime:
    facts = Facts.read(folder / "facts.json")
    parameters = {
        "threads": "1",
        "context_length": str(facts.context_length),
        "end_ids": ",".join(map(str, facts.end_ids)),
        "prefill_chunk_tokens": str(CHUNK),
    }
    return OnnxRuntime.load(folder, parameters)


def generate(running: OnnxRuntime, prompt: list[int], max_tokens: int) -> Kept:
    sink = Kept()
    wanted = GenerationInput(prompt_ids=prompt, max_tokens=max_tokens, temperature=0)
    running.submit(Job("r", wanted, sink))
    assert sink.is_over.wait(30)
    return sink


def oracle(folder: Path, prompt: list[int], max_tokens: int) -> list[int]:
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder / "engine"))
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(do_sample=False, max_length=len(prompt) + max_tokens)
    generator = onnxruntime_genai.Generator(model, parameters)
    generator.append_tokens(prompt)
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0)[len(prompt) :].tolist()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_the_oracles(artifacts, family):
    """Prompts shorter than, as long as, and longer than a prefill chunk; a row used again."""
    folder = artifacts / family
    running = runtime(folder)
    random = np.random.default_rng(0)
    for length in (1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 100, 5):
        prompt = random.integers(3, 250, length).tolist()
        sink = generate(running, prompt, 30)
        assert sink.ids == oracle(folder, prompt, 30)
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
    running = runtime(artifacts / "llama")
    begun = threading.Event()
    first, second, third = Kept(lambda count: begun.set()), Kept(), Kept()
    wanted = GenerationInput(prompt_ids=[5], max_tokens=4000, temperature=0)
    for request_id, sink in (("a", first), ("b", second), ("c", third)):
        running.submit(Job(request_id, wanted, sink))
    assert begun.wait(10)
    assert running.cancel("b")
    assert second.end == "cancelled"
    assert not second.ids
    assert running.cancel("a")
    assert first.is_over.wait(1)
    assert first.end == "cancelled"
    eventually(lambda: third.ids, 5, "the next one runs")
    assert not running.cancel("nobody")
    running.close()
    assert third.end == "cancelled"


def test_a_job_whose_sink_breaks_does_not_take_the_runtime_with_it(artifacts):
    def explode(count: int) -> None:
        raise RuntimeError("pipe is gone")

    running = runtime(artifacts / "llama")
    broken = Kept(explode)
    wanted = GenerationInput(prompt_ids=[5], max_tokens=3, temperature=0)
    running.submit(Job("a", wanted, broken))
    assert broken.is_over.wait(10)
    assert "pipe is gone" in broken.end
    assert len(generate(running, [5], 3).ids) == 3
    running.close()


def test_a_folder_that_cannot_be_served_says_why(tmp_path):
    with pytest.raises(UnservableModel, match=r"genai_config\.json"):
        DecoderSpec.read(tmp_path)
    (tmp_path / "genai_config.json").write_text('{"model": {"decoder": {}}}')
    with pytest.raises(UnservableModel, match="inputs"):
        OnnxDecoder(tmp_path, threads=1, context_length=8)


def test_a_changed_option_or_weight_makes_a_model_stale(artifacts):
    entry = ModelEntry(weights=artifacts / "weights" / "llama")
    assert is_built("llama", entry, artifacts)
    assert not is_built("llama", entry.model_copy(update={"context_length": 64}), artifacts)
    config = artifacts / "weights" / "llama" / "generation_config.json"
    before = config.read_bytes()
    config.write_bytes(before + b"\n")
    assert not is_built("llama", entry, artifacts)
    config.write_bytes(before)


def test_a_folder_that_is_onnx_already_is_served_as_it_is(artifacts, tmp_path):
    models = ModelsFile(models={"m": ModelEntry(weights=artifacts / "llama" / "engine")})
    said: list[str] = []
    build_all(models, tmp_path, say=said.append)
    assert "as it is" in said[0]
    ours, theirs = runtime(tmp_path / "m"), runtime(artifacts / "llama")
    assert generate(ours, [5, 6], 20).ids == generate(theirs, [5, 6], 20).ids
    ours.close()
    theirs.close()


def test_weights_that_are_not_there_are_named(tmp_path):
    models = ModelsFile(models={"m": ModelEntry(weights=tmp_path / "nowhere")})
    with pytest.raises(BuildError, match=r"'m'.*nowhere does not exist"):
        build_all(models, tmp_path, say=print)


def test_weights_that_are_no_model_are_named_with_the_builders_words(tmp_path):
    (tmp_path / "w").mkdir()
    models = ModelsFile(models={"m": ModelEntry(weights=tmp_path / "w")})
    with pytest.raises(BuildError, match=r"could not convert .*config\.json"):
        build_all(models, tmp_path, say=print)
