"""The config.pbtxt of NVIDIA's C++ backend in an image against ours."""

from __future__ import annotations

import re

import pytest

from build_engines.gpu.legacy import backend_config
from build_engines.triton_models import TEMPLATES

OURS = (TEMPLATES / "tensorrt_llm" / "config.pbtxt").read_text()
# As upstream's template has it: what fill_template.py puts in is not there yet.
THEIRS = (
    OURS.replace("max_batch_size: 64", "max_batch_size: ${triton_max_batch_size}")
    .replace("[ 64 ]", "[ ${triton_max_batch_size} ]")
    .replace("decoupled: true", "decoupled: ${decoupled_mode}")
    .replace('"tensorrtllm"', '"${triton_backend}"')
    .replace('"output_log_probs" data_type: TYPE_FP32', '"output_log_probs" data_type: TYPE_FP32')
    .replace(
        '"context_logits" data_type: TYPE_FP32', '"context_logits" data_type: ${logits_datatype}'
    )
    .replace(
        '"prompt_embedding_table" data_type: TYPE_FP16',
        '"prompt_embedding_table" data_type: ${prompt_embedding_table_data_type}',
    )
    .replace('string_value: "0.9"', 'string_value: "${kv_cache_free_gpu_mem_fraction}"')
)


def differences(before: str, after: str) -> list[str]:
    assert before in THEIRS
    theirs = backend_config.parsed(THEIRS.replace(before, after, 1))
    return [one.text for one in backend_config.differences(theirs)]


def test_the_template_as_we_know_it_is_ours():
    assert THEIRS.count("${") == 7
    assert differences("", "") == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "dims: [ -1, 3 ]",
            "dims: [ -1, 4 ]",
            "input lora_config is .*dims: 4.*, ours is .*dims: 3",
        ),
        ('"seed" data_type: TYPE_UINT64', '"seed" data_type: TYPE_INT64', "input seed is .*INT64"),
        ('input { name: "stop" ', 'input { name: "halt" ', "input halt is new"),
        ('key: "tokenizer_dir"', 'key: "tokenizer_folder"', "parameter tokenizer_folder is new"),
        ('output { name: "sequence_length"', 'output { name: "lengths"', "output lengths is new"),
    ],
)
def test_each_difference_is_named(before, after, told):
    assert re.match(told, differences(before, after)[0])


def test_what_is_gone_is_named_too():
    assert differences('input { name: "stop" ', 'input { name: "halt" ')[1] == "input stop is gone"
