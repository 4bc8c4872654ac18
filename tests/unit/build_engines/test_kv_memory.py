"""What context fits into a KV cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_engines import kv_memory
from build_engines.errors import BuildError
from build_engines.facts import Facts
from build_engines.models_file import OnnxEntry
from build_engines.onnx_options import OnnxOptions

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
    assert kv_memory.fitted(FACTS, 4_096_000) == FACTS


def test_a_longer_one_is_cut_to_what_one_request_can_have():
    assert kv_memory.fitted(FACTS, 1_000_999).context_length == 1000


def test_hardly_any_context_is_refused_with_what_to_do():
    with pytest.raises(BuildError, match=r"hold 10 tokens, 1000 bytes each.*kv_cache_mb"):
        kv_memory.fitted(FACTS, 10_000)


def test_models_share_the_machines_memory_unless_told_otherwise():
    entry = OnnxEntry(weights=Path("w"))
    whole, half = kv_memory.kv_bytes(entry, models=1), kv_memory.kv_bytes(entry, models=2)
    assert half == pytest.approx(whole / 2, abs=1)
    told = entry.model_copy(update={"onnx": OnnxOptions(kv_cache_mb=7)})
    assert kv_memory.kv_bytes(told, models=2) == 7_000_000
