"""The arguments that `build` writes are upstream's: every key, nested ones too, and its type.

The argument classes are made of upstream's recorded fields, and refuse all others: the stand-in's
of 1.2, and those of 1.3.0rc25.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version
from pydantic import ValidationError
from tensorrt_llm.llmapi.llm_args import DecodingBaseConfig, Names, TorchLlmArgs, TrtLlmArgs

from build_engines.gpu import llm_args
from build_engines.gpu.options import GpuOptions
from build_engines.upstream.signatures import NEWER
from tests.fixtures.gpu_examples import examples
from tests.fixtures.stack import HANG_S
from tests.fixtures.trtllm_runtime import PARAMETERS, executor, generate
from trtllm.library import Library, StartFailed

FOLDERS = {"weights": Path("/w"), "draft": Path("/d")}
EXAMPLES = examples()


CHOICES: list[dict[str, object]] = [
    {},
    {"tensor_parallel": 8, "expert_parallel": 4, "pipeline_parallel": 2, "max_seq_len": 99},
    {"tensor_parallel": 8, "expert_parallel": 8, "attention_dp": True},
    {"kv_cache": {"host_offload_gb": 8, "dtype": "fp8"}, "guided_decoding": "llguidance"},
    {"kv_cache": {"event_buffer_max_size": 100_000}},
    {"sampler": "torch", "scheduler": "max_utilization", "chunked_prefill": False},
    {"lora": {"adapters": {"sql": "l", "poet": "l"}}},
    {"speculative": {"method": "eagle3", "draft": "d"}},
    {"speculative": {"method": "draft_target", "draft": "d"}},
    {"speculative": {"method": "mtp", "layers": 2}},
    {"speculative": {"method": "ngram"}},
    {
        "attention_dp": True,
        "tensor_parallel": 2,
        "llm_args": {
            "stream_interval": 4,
            "attention_dp_config": {"enable_balance": True},
            "torch_compile_config": {"capture_num_tokens": [64]},
            "moe_config": {"backend": "DEEPGEMM"},
            "kv_cache_config": {"tokens_per_block": 64},
            "cuda_graph_config": {"batch_sizes": [1, 8]},
            "peft_cache_config": {"num_put_workers": 2},
        },
    },
]
PLANS: list[dict[str, object]] = [
    {"engine": "plan"},
    {"engine": "plan", "speculative": {"method": "lookahead"}},
]


@pytest.mark.parametrize("given", CHOICES + PLANS)
def test_they_start_it(tmp_path, given):
    start(tmp_path, GpuOptions.model_validate(given))


@pytest.mark.parametrize(("label", "entry"), EXAMPLES, ids=[label for label, _ in EXAMPLES])
def test_those_of_each_example_start_it(tmp_path, label, entry):
    start(tmp_path, GpuOptions.model_validate(entry.gpu.model_dump()))


def start(folder: Path, options: GpuOptions) -> None:
    library = Library.load("tensorrt" if options.engine == "plan" else "pytorch")
    llm = library.start(folder, json.dumps(arguments_of(options, library.version)))
    llm.shutdown()


def arguments_of(options: GpuOptions, version: str) -> dict[str, Any]:
    modules = {"attn_qkv": "qkv_proj"}
    return llm_args.of(options, FOLDERS, version=Version(version), lora_modules=modules)


LATER = Names(NEWER)["TorchLlmArgs"]  # of 1.3.0rc25


@pytest.mark.parametrize("given", CHOICES)
def test_they_are_those_of_the_later_record(given):
    take_later(GpuOptions.model_validate(given))


@pytest.mark.parametrize(("label", "entry"), EXAMPLES, ids=[label for label, _ in EXAMPLES])
def test_those_of_each_example_are_of_the_later_record(label, entry):
    options = GpuOptions.model_validate(entry.gpu.model_dump())
    if options.engine == "pytorch":
        take_later(options)


def take_later(options: GpuOptions) -> None:
    found = arguments_of(options, "1.3.0rc25")
    if found["cuda_graph_config"] is not None:  # upstream's infer_cuda_graph_config_mode
        found["cuda_graph_config"]["mode"] = "decode"
    LATER(model="/m", **found)


@pytest.mark.parametrize(
    "given",
    [
        {"sampler_type": "TorchSampler"},
        {"speculative_config": {"decoding_type": "DraftTarget", "max_draft_len": 4}},
        {"speculative_config": {"decoding_type": "Eagle3", "draft": "/d"}},
        {"scheduler_config": {"waiting_queue_policy": "fair"}},
    ],
)
def test_the_later_record_refuses_what_it_has_not(given):
    with pytest.raises(ValidationError, match=next(iter(given))):
        LATER(model="/m", **given)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"max_batch": 8}, "max_batch"),
        ({"enable_iter_perf_stats": "loud"}, "enable_iter_perf_stats"),
        ({"kv_cache_config": {"free_gpu_memory_share": 0.9}}, "free_gpu_memory_share"),
        ({"kv_cache_config": {"host_cache_size": 1.5}}, "host_cache_size"),
        ({"cuda_graph_config": {"padding_enabled": True}}, "padding_enabled"),
        ({"scheduler_config": {"capacity_scheduler_policy": "FAIR"}}, "capacity_scheduler_policy"),
        ({"lora_config": {"max_rank": 8}}, "max_rank"),
        ({"guided_decoding_backend": "outlines"}, "guided_decoding_backend"),
        ({"build_config": None}, "build_config"),
        ({"speculative_config": {"decoding_type": "NGram"}}, "speculative_config"),
    ],
)
def test_what_upstream_does_not_have_is_refused(arguments, place):
    with pytest.raises(ValidationError, match=place):
        TorchLlmArgs(model="/m", **arguments)


def test_a_plan_is_refused_what_only_the_pytorch_runtime_has():
    with pytest.raises(ValidationError, match="cuda_graph_config"):
        TrtLlmArgs(model="/m", cuda_graph_config=None)


def test_a_speculation_of_another_type_or_key_is_refused():
    with pytest.raises(ValueError, match="Invalid decoding type: Draft_Target"):
        DecodingBaseConfig.from_dict({"decoding_type": "Draft_Target"})
    with pytest.raises(ValidationError, match="ngram_size"):
        DecodingBaseConfig.from_dict({"decoding_type": "NGram", "ngram_size": 2})


def test_a_version_without_from_dict_gets_the_dictionary(tmp_path, monkeypatch):
    """Upstream's later llm_args.py, whose `LLM` chooses the class by decoding_type."""
    monkeypatch.delattr(DecodingBaseConfig.__base__, "from_dict")
    got = []

    class Alive:
        def __init__(self, **arguments):
            got.append(arguments["speculative_config"])
            self._executor = SimpleNamespace(is_shutdown=lambda: False)

    given = {"speculative_config": {"decoding_type": "NGram", "max_draft_len": 4}}
    replace(Library.load("pytorch"), llm=Alive).start(tmp_path, json.dumps(given))
    assert got == [given["speculative_config"]]


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


ENGINE = Path(__file__).parents[2] / "model_repository" / "engine" / "1"
IMPORTED = """
import json, os
print(json.dumps(dict(os.environ)))
raise ImportError("that is all")
"""
PROGRAM = """
import json, sys
from pathlib import Path
from trtllm.library import StartFailed
from trtllm.runtime import load
try:
    load(Path("."), json.loads(sys.argv[1]), print)
except StartFailed:
    pass
"""


# Under `mpirun -n 1` of Open MPI 4.1.8, and what an operator may have set beside it.
RANK = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_UNIVERSE_SIZE": "2",
    "OMPI_MCA_ess": "^singleton",
    "OMPI_MCA_ess_base_jobid": "1274806273",
    "OMPI_MCA_orte_hnp_uri": "1274806272.0;tcp://192.0.2.2:42487",
    "PMIX_NAMESPACE": "1274806273",
    "PMIX_RANK": "0",
    "PMIX_SERVER_URI3": "1274806272.0;tcp4://127.0.0.1:54609",
    "PMI_RANK": "0",
}
CONFIGURATION = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_MCA_btl": "^openib",
    "OMPI_MCA_rmaps_base_oversubscribe": "0",
    "PMIX_MCA_gds": "hash",
}


def seen_at_import(folder: Path, given: dict[str, str], **parameters: str) -> dict[str, str]:
    """The variables when the runtime imports tensorrt_llm, in a process of its own."""
    (folder / "tensorrt_llm.py").write_text(IMPORTED)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps({**PARAMETERS, **parameters})],
        env={"PYTHONPATH": f"{ENGINE}:{folder}", "PATH": "/usr/bin:/bin", **given},
        capture_output=True, text=True, timeout=HANG_S, check=True,
    )  # fmt: skip
    return json.loads(result.stdout)


def test_named_gpus_are_the_only_ones_that_cuda_sees(tmp_path):
    found = seen_at_import(tmp_path, {}, devices="2,3")
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")


def test_without_names_cuda_sees_all_and_workers_need_no_cores(tmp_path):
    found = seen_at_import(tmp_path, {})
    assert not {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"} & set(found)
    assert found["OMPI_MCA_rmaps_base_oversubscribe"] == "1"


@pytest.mark.parametrize(("chosen", "value"), [("true", "1"), ("false", None)])
def test_the_single_process_worker_is_chosen_by_its_variable(tmp_path, chosen, value):
    found = seen_at_import(tmp_path, {}, single_process=chosen)
    assert found.get("TLLM_WORKER_USE_SINGLE_PROCESS") == value


def test_under_mpirun_it_has_a_job_of_its_own(tmp_path):
    found = seen_at_import(tmp_path, {**RANK, **CONFIGURATION})
    assert not set(RANK) & set(found)
    assert {name: found.get(name) for name in CONFIGURATION} == CONFIGURATION


def test_below_upstreams_launcher_it_keeps_its_place(tmp_path):
    found = seen_at_import(tmp_path, {**RANK, "TLLM_SPAWN_PROXY_PROCESS": "1"})
    assert {name: found.get(name) for name in RANK} == RANK
