"""A build: one at a time in a folder, and the context that fits into the KV cache on a CPU."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from build_engines.build import fitted_to, kv_cache_bytes, locked
from build_engines.errors import BuildError
from build_engines.facts import Facts
from build_engines.models_file import OnnxEntry, OnnxOptions

FACTS = Facts(
    special_tokens={},
    context_length=4096,
    vocab_size=10,
    end_ids=(1,),
    chat_template=None,
    bos_token="",
    eos_token="",
    strips_leading_space=False,
    created=0,
    kv_token_bytes=1000,
)


def test_a_context_that_fits_is_left_alone():
    assert fitted_to(FACTS, 4_096_000) == FACTS


def test_a_longer_one_is_cut_to_what_one_request_can_have():
    assert fitted_to(FACTS, 1_000_999).context_length == 1000


def test_hardly_any_context_is_refused_with_what_to_do():
    with pytest.raises(BuildError, match=r"hold 10 tokens, 1000 bytes each.*kv_cache_mb"):
        fitted_to(FACTS, 10_000)


def test_models_share_the_machines_memory_unless_told_otherwise():
    entry = OnnxEntry(weights=Path("w"))
    whole, half = kv_cache_bytes(entry, models=1), kv_cache_bytes(entry, models=2)
    assert half == pytest.approx(whole / 2, abs=1)
    told = entry.model_copy(update={"onnx": OnnxOptions(kv_cache_mb=7)})
    assert kv_cache_bytes(told, models=2) == 7_000_000


def test_a_second_build_waits_and_says_so(tmp_path: Path):
    said: list[str] = []
    order: list[str] = []
    is_waiting = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        is_waiting.set()

    def second() -> None:
        with locked(tmp_path, say):
            order.append("second")

    other = threading.Thread(target=second)
    with locked(tmp_path, said.append):
        other.start()
        is_waiting.wait()
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert said == [f"another process builds in {tmp_path}: waiting until it has finished"]
