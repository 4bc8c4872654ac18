"""extra_arguments: `gpu.llm_args`, what is taken, and what is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.version import Version
from pydantic import ValidationError

from build_engines.errors import BuildError
from build_engines.gpu import extra_arguments, llm_args
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.refusals import refusals
from build_engines.upstream.signatures import NEWER, RecordedClasses
from tests.unit.build_engines.gpu.recipes import make

RECORD, LATER = RecordedClasses.read(), RecordedClasses.read(NEWER)
FOLDERS = {"weights": Path("/w"), "draft": Path("/d")}


def arguments(given: dict, **options: object) -> dict:
    chosen = GpuOptions.model_validate({"llm_args": given, **options})
    return llm_args.of(chosen, FOLDERS, version=Version("1.2.1"), lora_modules={})


def reasons(given: dict, **options: object) -> dict[str, str]:
    """What models.yaml is refused for, by the path of the argument."""
    found = refusals(GpuOptions.model_validate({"llm_args": given, **options}))
    return {".".join(each.where[1:]): each.reason for each in found}


def test_arguments_are_passed_on_and_merged_into_ours():
    plain = arguments({})
    found = arguments(
        {
            "print_iter_log": True,
            "moe_config": {"backend": "WIDEEP"},
            "kv_cache_config": {"max_attention_window": [4096]},
            "scheduler_config": {"context_chunking_policy": "EQUAL_PROGRESS"},
        }
    )
    assert found == plain | {
        "print_iter_log": True,
        "moe_config": {"backend": "WIDEEP"},
        "kv_cache_config": plain["kv_cache_config"] | {"max_attention_window": [4096]},
        "scheduler_config": plain["scheduler_config"]
        | {"context_chunking_policy": "EQUAL_PROGRESS"},
    }


@pytest.mark.parametrize("graphs", [None, {"batch_sizes": [1, 8]}])
def test_cuda_graphs_are_taken_as_they_are_given(graphs):
    """Upstream refuses batch_sizes beside our max_batch_size."""
    assert arguments({"cuda_graph_config": graphs})["cuda_graph_config"] == graphs


@pytest.mark.parametrize(
    ("given", "place", "said"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size", "is set by gpu.tensor_parallel: use"),
        ({"kv_cache_config": {"dtype": "fp8"}}, "kv_cache_config.dtype", "gpu.kv_cache.dtype"),
        ({"revision": "main"}, "revision", "is set by weights: hf://org/name@revision: use that"),
        ({"trust_remote_code": True}, "trust_remote_code", "it runs Python code that comes with"),
        ({"skip_tokenizer_init": True}, "skip_tokenizer_init", "needs the tokenizer"),
        ({"num_postprocess_workers": 4}, "num_postprocess_workers", "must return token ids"),
        ({"load_format": "dummy"}, "load_format", "it may load random weights"),
        ({"env_overrides": {"A": "b"}}, "env_overrides", "the environment of the container"),
        ({"kv_connector_config": {}}, "kv_connector_config", "it names code"),
        ({"moe_config": {"load_balancer": "x"}}, "moe_config.load_balancer", "it names a file"),
        ({"attn_backend": "my.module:Class"}, "attn_backend", "is 'my.module:Class': paths, addr"),
        ({"attn_backend": "/tmp/x"}, "attn_backend", "paths, addresses and names of code"),
        ({"later": [["http://x"]]}, "later[][]", "is 'http://x': paths"),
        ({"batch_wait_timeout_ms": float("inf")}, "batch_wait_timeout_ms", "a number below 2**63"),
        ({"batch_wait_timeout_iters": 2**70}, "batch_wait_timeout_iters", "a number below 2**63"),
        ({"attention_dp_config": {}}, "attention_dp_config", "with gpu.attention_dp only"),
        ({"a" * 20_000: 1}, "", "has more than 10,000 characters"),
    ],
)
def test_what_no_version_may_be_given_is_refused_with_models_yaml(given, place, said):
    assert said in reasons(given)[place]


def test_attention_dp_may_be_configured_where_it_is_on():
    given = {"attention_dp_config": {"enable_balance": True}}
    assert reasons(given, attention_dp=True, tensor_parallel=2) == {}


@pytest.mark.parametrize("given", [{1: 2}, {"a": b"x"}, ["a"], {str(n): n for n in range(65)}])
def test_what_json_cannot_say_is_refused(given):
    with pytest.raises(ValidationError):
        GpuOptions.model_validate({"llm_args": given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"print_iter_logs": True},
            "has no llm_args.print_iter_logs: did you mean print_iter_log",
        ),
        ({"print_iter_log": "yes"}, "llm_args.print_iter_log is 'yes', must be bool"),
        ({"moe_config": {"backend": "FAST"}}, "llm_args.moe_config.backend is 'FAST', must be"),
        ({"cp_size": 2}, "has no llm_args.cp_size"),
    ],
)
def test_the_version_decides_names_and_types_before_anything_is_fetched(tmp_path, given, said):
    with pytest.raises(BuildError) as error:
        make(tmp_path, "llama-3.1-8b", {"llm_args": given})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("version", "given", "said"),
    [
        ("1.2.1", {"enable_in_graph_sampling": True}, "has no llm_args.enable_in_graph_sampling"),
        ("1.3.0rc25", {"disable_flashinfer_sampling": True}, "has no llm_args.disable_flashinfer"),
        ("1.3.0rc25", {"stream_interval": 0}, "llm_args.stream_interval is 0, must be PositiveInt"),
        ("1.3.0rc25", {"enable_in_graph_sampling": True}, None),
        ("1.3.0rc25", {"kv_cache_config": {"use_kv_cache_manager_v2": "auto"}}, None),
        ("1.3.0rc25", {"cuda_graph_config": {"batch_sizes": [1, 8]}}, None),
    ],
)
def test_the_installed_version_has_its_own_names(tmp_path, version, given, said):
    if said is None:
        make(tmp_path, "llama-3.1-8b", {"llm_args": given}, version=version)
        return
    with pytest.raises(BuildError, match=re.escape(said)):
        make(tmp_path, "llama-3.1-8b", {"llm_args": given}, version=version)


def test_good_arguments_are_built_and_run_no_tool(tmp_path):
    found = make(tmp_path, "llama-3.1-8b", {"llm_args": {"stream_interval": 4}})
    assert [step.name for step in found.steps] == ["weights", "check", "tables"]


def test_nothing_that_build_sets_is_replaced_silently():
    """Also an argument that only some options or a later version make it set."""
    own = {"print_iter_log": True, "kv_cache_config": {"event_buffer_max_size": 16}}
    given = {"print_iter_log": False, "kv_cache_config": {"event_buffer_max_size": 1}}
    assert list(extra_arguments.problems(given, own, RECORD)) == [
        "llm_args.print_iter_log is set by build, to True: leave it out",
        "llm_args.kv_cache_config.event_buffer_max_size is set by build, to 16: leave it out",
    ]
    graphs = {"cuda_graph_config": {"enable_padding": False}}
    (said,) = extra_arguments.problems(graphs, {"cuda_graph_config": None}, RECORD)
    assert "CUDA graphs change the answers of adapters" in said


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tensor_parallel": 8, "expert_parallel": 4, "attention_dp": True, "max_seq_len": 99},
        {"lora": {"adapters": {"sql": "l"}}},
        {"speculative": {"method": "ngram"}},
        {"kv_cache": {"host_offload_gb": 8}},
    ],
)
def test_each_argument_of_ours_names_its_option_or_is_found_in_what_build_sets(options):
    """Otherwise somebody could give it a second value."""
    given = GpuOptions.model_validate(options)
    own = llm_args.of(given, FOLDERS, version=Version("1.2.1"), lora_modules={})
    for name, value in own.items():
        for inner, each in value.items() if isinstance(value, dict) else ():
            place = f"{name}.{inner}"
            if name not in {*extra_arguments.REPLACED, *extra_arguments.OPTIONS}:
                assert place in extra_arguments.OPTIONS or list(
                    extra_arguments.problems({name: {inner: each}}, own, RECORD)
                ), place
        if not isinstance(value, dict):
            assert name in {*extra_arguments.OPTIONS, *extra_arguments.REPLACED}, name


def test_every_name_that_is_refused_is_upstreams():
    """All but use_torch_sampler, which the recorded versions no longer have."""
    names = {*extra_arguments.OPTIONS, *extra_arguments.REFUSED, *extra_arguments.NEED_ATTENTION_DP}
    classes = {
        "kv_cache_config": "KvCacheConfig",
        "scheduler_config": "SchedulerConfig",
        "moe_config": "MoeConfig",
        "peft_cache_config": "PeftCacheConfig",
    }
    for name in names - {"use_torch_sampler"}:
        owner, _, field = name.rpartition(".")
        owner = classes.get(owner, "TorchLlmArgs")
        assert field in {**RECORD.fields(owner), **LATER.fields(owner)}, name
