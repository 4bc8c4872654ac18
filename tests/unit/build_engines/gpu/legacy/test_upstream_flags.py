"""Flags, choices and defaults, held to the record of upstream's own: build_engines/upstream/."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from build_engines.errors import BuildError
from build_engines.gpu import recipe
from build_engines.gpu.device import Device
from build_engines.gpu.legacy.verify import CACHE_BLOCK
from build_engines.gpu.options import GpuOptions, Lora, Mtp
from build_engines.gpu.recipe import Recipe
from build_engines.upstream.signatures import RecordedClasses
from tests.doubles.upstream_tools import SCRIPTS
from tests.fixtures.gpu_examples import VARIANTS, examples, published_for
from tests.fixtures.published import PARAMETERS, config
from tests.unit.build_engines.gpu import recipes
from tests.upstream.parsers import parser, recorded

CLASSES = RecordedClasses.read()
EXAMPLES = examples()
BIG = Device(memory_gb=192, architecture="hopper")


def commands(found: Recipe) -> Iterator[tuple[str, list[str]]]:
    """(tool, its arguments) of each command that calls one of upstream's tools."""
    for step in found.steps:
        for line in step.shown(step.folder):
            words = shlex.split(line)
            for tool, script in SCRIPTS.items():
                if len(words) > 1 and words[1] == f"/examples/{script}":
                    yield tool, words[2:]
            if words[:1] == ["trtllm-build"]:
                yield "build", words[1:]


def check(found: Recipe) -> list[str]:
    """Fails where upstream's tool would end with an error. Returns the tools."""
    called = []
    for tool, arguments in commands(found):
        parser(tool).parse_args(arguments)
        called.append(tool)
    return called


@pytest.mark.parametrize(("label", "entry"), EXAMPLES, ids=[label for label, _ in EXAMPLES])
def test_upstreams_tools_take_the_commands_of_each_example(tmp_path, label, entry):
    (tmp_path / "weights").mkdir()
    local = entry.model_copy(update={"weights": tmp_path / "weights"})
    check(recipe.make(local, config(published_for(entry)), recipes.context(tmp_path, device=BIG)))


@pytest.mark.parametrize("name", PARAMETERS)
def test_upstreams_tools_take_the_commands_of_each_published_model(tmp_path, name):
    called = set()
    for variant in VARIANTS:
        try:
            found = recipes.make(tmp_path, name, {"engine": "plan", **variant}, device=BIG)
        except (BuildError, ValidationError):
            continue  # refused: test_refusals.py
        called |= set(check(found))
    has_plans = name != "gpt-oss-20b"
    assert ("build" in called) is has_plans
    assert ("quantize" in called) is has_plans


def test_the_cpp_backend_and_adapters_have_recorded_flags(tmp_path):
    found = recipes.make(tmp_path, "llama-3.1-8b", {}, runtime="tensorrtllm")
    assert sorted(check(found)) == ["build", "convert_llama", "guide_info"]
    (tmp_path / "sql").mkdir()
    lora = {"adapters": {"sql": str(tmp_path / "sql")}}
    found = recipes.make(tmp_path, "llama-3.1-8b", {"engine": "plan", "lora": lora})
    assert sorted(check(found)) == ["build", "convert_llama"]


def default_of(tool: str, flag: str) -> object:
    for row in recorded()[tool]["arguments"]:
        if flag in row["flags"]:
            return row["default"]
    raise KeyError(flag)


def default_in(name: str, field: str) -> object:
    return CLASSES.fields(name)[field]["default"]


OURS = GpuOptions()
ADAPTERS = Lora(adapters={"a": Path("/a")})


@pytest.mark.parametrize(
    ("ours", "upstreams"),
    [
        (OURS.dtype, default_in("BaseLlmArgs", "dtype")),
        (OURS.dtype, default_of("quantize", "--dtype")),
        (OURS.dtype, default_of("convert_qwen", "--dtype")),
        (OURS.max_num_tokens, default_in("BaseLlmArgs", "max_num_tokens")),
        (OURS.tensor_parallel, default_in("BaseLlmArgs", "tensor_parallel_size")),
        (OURS.pipeline_parallel, default_in("BaseLlmArgs", "pipeline_parallel_size")),
        (OURS.kv_cache.fraction, default_in("KvCacheConfig", "free_gpu_memory_fraction")),
        (OURS.kv_cache.reuse, default_in("KvCacheConfig", "enable_block_reuse")),
        (OURS.kv_cache.dtype, default_in("KvCacheConfig", "dtype")),
        (OURS.plan.workers, default_of("build", "--workers")),
        (ADAPTERS.max_rank, default_in("LoraConfig", "max_lora_rank")),
        (ADAPTERS.max_rank, default_of("build", "--max_lora_rank")),
        (Mtp(method="mtp").layers, default_in("MTPDecodingConfig", "num_nextn_predict_layers")),
        (CACHE_BLOCK, default_of("build", "--tokens_per_block")),
        (CACHE_BLOCK, default_in("KvCacheConfig", "tokens_per_block")),
        (
            {"expression": f"CapacitySchedulerPolicy.{OURS.scheduler.upper()}"},
            default_in("SchedulerConfig", "capacity_scheduler_policy"),
        ),
    ],
)
def test_our_defaults_are_upstreams_where_we_have_the_same(ours, upstreams):
    assert ours == upstreams
