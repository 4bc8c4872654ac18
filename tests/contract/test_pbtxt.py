"""The tensor contract as data: every config.pbtxt, its joins, its model.py, and tensors.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from build_engines import triton_models
from proxy.triton import tensors

ROLES = ("ensemble", *triton_models.ROLES)
ENGINES = ("engine", "tensorrt_llm")
CPP_LACKS = {
    *("min_p", "num_top_log_probs", "echo_prompt", "priority", "cache_salt", "lora_name", "image"),
    *("timeout_ms", "resume_from", "finish_reason", "num_cached_tokens", "queue_time_us"),
    *("top_log_probs", "top_log_prob_ids", "top_log_prob_text"),
    *("prefill_time_us", "decode_time_us", "prompt_blocks"),
}
# What reads an input tensor by its name, in the Python models.
READ = "get_input_tensor_by_name|_?scalar|_?elements|_optional_elements|_text|_integer|_limit"
USED = re.compile(rf'\b(?:{READ})\((?:request, )?"(\w+)"\)|Tensor\(\s*"(\w+)"')

# A row of the engine's table of sampling, whose tensor has the field's name.
ROW = re.compile(r"^    (\w+): .* = _scalar\((?!.*tensor=)", re.MULTILINE)


def declared(config: ModelConfig) -> dict[str, tuple[int, tuple[int, ...]]]:
    rows = [*config.input, *config.output]
    return {row.name: (row.data_type, tuple(row.dims)) for row in rows}


def wire_type(data_type: int) -> str:
    """As metadata and requests spell it."""
    name = DataType.Name(data_type).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("role", ROLES)
def test_names_are_unique_within_a_side(role, engine):
    config = triton_models.config_of(role, engine)
    for side in (config.input, config.output):
        names = [row.name for row in side]
        assert len(names) == len(set(names))
    assert config.name == (engine if role == "engine" else role)


@pytest.mark.parametrize("role", [*triton_models.ROLES, "embedding"])
def test_a_model_uses_all_declared_tensors_and_no_other(role):
    config = triton_models.config_of(role)
    if role not in ("engine", "embedding"):
        config = triton_models.config_of(role, "tensorrt_llm")
    folders = (
        Path(triton_models.TEMPLATES, each) for each in (f"{role}/1", f"tensorrt_llm/{role}")
    )
    source = "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    quoted = set(re.findall(r'"(\w+)"', source))
    declared = {row.name for row in [*config.input, *config.output]}
    rows = set(ROW.findall(source))
    assert declared <= quoted | rows
    assert {a or b for a, b in USED.findall(source)} | rows <= declared


@pytest.mark.parametrize("engine", ENGINES)
def test_every_step_joins_tensors_of_equal_type_and_shape(engine):
    ensemble = triton_models.config_of("ensemble", engine)
    pool = {row.name: (row.data_type, tuple(row.dims)) for row in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        model = declared(triton_models.config_of(step.model_name, engine))
        for inner, outer in step.input_map.items():
            assert pool[outer] == model[inner], f"{step.model_name}.{inner} <- {outer}"
        for inner, outer in step.output_map.items():
            assert outer not in pool, f"{outer} is produced twice"
            pool[outer] = model[inner]
    for row in ensemble.output:
        assert pool[row.name] == (row.data_type, tuple(row.dims)), row.name


@pytest.mark.parametrize("engine", ENGINES)
def test_every_step_maps_all_required_inputs_and_optional_ones_are_optional_on_both_sides(engine):
    ensemble = triton_models.config_of("ensemble", engine)
    optional, produced = {row.name for row in ensemble.input if row.optional}, set()
    for step in ensemble.ensemble_scheduling.step:
        for row in triton_models.config_of(step.model_name, engine).input:
            if not row.optional:
                assert row.name in step.input_map
                assert step.input_map[row.name] not in optional
            elif row.name in step.input_map:
                assert step.input_map[row.name] in optional | produced
        produced |= set(step.output_map.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_detokenizer_sees_engine_outputs_only_and_the_ensemble_gives_no_tokenizer_output(
    engine,
):
    """A decoupled engine splits an ensemble: Triton refuses to load one that mixes the sides."""
    ensemble = triton_models.config_of("ensemble", engine)
    tokenizer, decoder, detokenizer = ensemble.ensemble_scheduling.step
    assert set(detokenizer.input_map.values()) <= set(decoder.output_map.values())
    assert not {row.name for row in ensemble.output} & set(tokenizer.output_map.values())


def test_the_cpp_ensemble_is_the_contract_less_what_the_backend_lacks():
    ours = declared(triton_models.config_of("ensemble"))
    cpp = declared(triton_models.config_of("ensemble", "tensorrt_llm"))
    assert cpp == {name: row for name, row in ours.items() if name not in CPP_LACKS}


def test_the_cpp_engine_has_what_its_backend_cannot_do_without():
    engine = triton_models.config_of("engine", "tensorrt_llm")
    _, decoder, _ = triton_models.config_of("ensemble", "tensorrt_llm").ensemble_scheduling.step
    assert {"output_ids", "sequence_length"} <= set(decoder.output_map)
    assert {"input_lengths", "streaming", "runtime_top_k", "seed"} <= set(decoder.input_map)
    assert engine.model_transaction_policy.decoupled
    assert declared(engine)["seed"] == (DataType.TYPE_UINT64, (1,))
    assert set(engine.parameters) >= {
        *("gpt_model_type", "tokenizer_dir"),
        *("xgrammar_tokenizer_info_path", "guided_decoding_backend"),
    }
    assert engine.parameters["gpt_model_type"].string_value == "inflight_fused_batching"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_rendered_parses_and_declares_nothing_that_was_left_out(tmp_path, engine):
    left_out = {"seed", "min_tokens", "output_log_probs", "return_log_probs", "bad_words"}
    parameters = {"engine": {"gpt_model_path": "/x"}}
    triton_models.render("m", tmp_path, parameters, engine=engine, without=left_out)
    configs = {
        role: triton_models.parse((tmp_path / name / "config.pbtxt").read_text())
        for role, name in (("ensemble", "m"), *((role, f"m_{role}") for role in ROLES[1:]))
    }
    assert {config.name for config in configs.values()} == {
        path.name for path in tmp_path.iterdir()
    }
    assert not left_out & set(declared(configs["ensemble"]))
    assert not {"min_tokens", "return_log_probs"} & set(declared(configs["engine"]))
    assert configs["engine"].parameters["gpt_model_path"].string_value == "/x"
    for step in configs["ensemble"].ensemble_scheduling.step:
        assert not left_out & {*step.input_map.values(), *step.output_map.values()}
        model = declared(configs[step.model_name.removeprefix("m_")])
        assert {*step.input_map, *step.output_map} <= set(model)
    assert (tmp_path / "m_engine" / "1" / "model.py").exists() == (engine == "engine")


@pytest.mark.parametrize("engine", ENGINES)
def test_chunks_stay_in_order(engine):
    """One detokenizer instance with batches that preserve it keeps the order of responses."""
    config = triton_models.config_of("detokenizer", engine)
    assert [group.count for group in config.instance_group] == [1]
    assert config.dynamic_batching.preserve_ordering
    ragged = {row.name for row in config.input if row.allow_ragged_batch}
    assert ragged == {r.name for r in config.input if len(r.dims) == 2}, "lengths differ"


@pytest.mark.parametrize(
    ("role", "rows"),
    [
        ("ensemble", (*tensors.INPUTS, *tensors.OUTPUTS)),
        ("engine", (*tensors.STOP_INPUTS, *tensors.LEASE_INPUTS, *tensors.BLOCKS_INPUTS)),
        ("tokenizer", (*tensors.TOKENIZER_INPUTS, *tensors.TOKENIZER_OUTPUTS)),
    ],
)
def test_the_proxys_rows_are_declared_with_their_types(role, rows):
    types = {
        name: wire_type(kind) for name, (kind, _) in declared(triton_models.config_of(role)).items()
    }
    assert {row.name: row.datatype for row in rows}.items() <= types.items()


def test_every_input_of_the_ensemble_has_a_row():
    """A tensor that the proxy does not know is a parameter that nobody can use."""
    inputs = {row.name for row in triton_models.config_of("ensemble").input}
    assert inputs == {row.name for row in tensors.INPUTS}


def test_every_input_of_the_tokenizer_is_sent_to_it_alone_too():
    inputs = {row.name for row in triton_models.config_of("tokenizer").input}
    assert inputs == {row.name for row in tensors.TOKENIZER_INPUTS}


def test_both_sides_speak_the_same_version():
    assert triton_models.CONTRACT_VERSION == tensors.CONTRACT_VERSION
