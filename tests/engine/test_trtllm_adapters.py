"""The LoRA adapter of a request is passed to TensorRT-LLM; against the stand-in."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.trtllm_runtime import PARAMETERS, executor, generate
from trtllm.library import StartFailed

ARGUMENTS = json.loads(PARAMETERS["llm_args"]) | {
    "lora_config": {"lora_target_modules": ["attn_q"]}
}


@pytest.fixture
def told(tmp_path):
    """The engine's parameters of a model with two adapters."""
    folders = {name: tmp_path / "adapters" / name for name in ("sql", "poet")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    adapters = json.dumps({name: str(folder) for name, folder in folders.items()})
    return {"llm_args": json.dumps(ARGUMENTS), "lora_adapters": adapters}


def named():
    """Of each request that reached TensorRT-LLM, its adapter's name, id and folder's name."""
    return [
        one and (one.name, one.adapter_id, one.path.rpartition("/")[2])
        for one in executor().adapters
    ]


def test_an_id_is_the_same_wherever_an_adapter_stands_in_the_file(runtime, told):
    turned = dict(reversed(json.loads(told["lora_adapters"]).items()))
    running = runtime(**{**told, "lora_adapters": json.dumps(turned)})
    generate(running, lora_name="sql")
    assert named() == [("sql", 2, "sql")]


def test_no_adapter_finds_what_another_or_the_model_left_in_the_cache(runtime, told):
    running, prompt = runtime(**told), list(range(5, 75))
    cached = [
        generate(running, prompt=prompt, lora_name=name).cached_tokens
        for name in ("", "sql", "poet", "sql", "")
    ]
    assert cached == [0, 0, 0, 64, 64]


def test_an_adapter_that_the_model_has_not_is_refused_by_name(runtime, told):
    sink = generate(runtime(**told), lora_name="nope", echoes_prompt=True, max_tokens=0)
    assert sink.end == "refused"
    assert "no adapter 'nope'; its adapters: poet, sql" in sink.message


def test_a_model_without_adapters_has_none(runtime):
    sink = generate(runtime(), lora_name="sql")
    assert sink.end == "refused"
    assert "no adapter 'sql'; its adapters: none" in sink.message


def test_a_folder_that_is_gone_is_named_at_the_start(runtime, told, tmp_path):
    (tmp_path / "adapters" / "sql").rmdir()
    with pytest.raises(StartFailed, match=r"adapters/sql\) does not exist"):
        runtime(**told)
