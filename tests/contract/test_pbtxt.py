"""The tensor contract as data: every config.pbtxt, its joins, its model.py, and tensors.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from build_engines import triton_models
from proxy.triton import tensors

ROLES = ("ensemble", *triton_models.ROLES)
USED = re.compile(r'(?:get_input_tensor_by_name|_scalar)\(request, "(\w+)"\)|Tensor\(\s*"(\w+)"')


def declared(config: ModelConfig) -> dict[str, tuple[int, tuple[int, ...]]]:
    rows = [*config.input, *config.output]
    return {row.name: (row.data_type, tuple(row.dims)) for row in rows}


def wire_type(data_type: int) -> str:
    """As metadata and requests spell it."""
    name = DataType.Name(data_type).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


@pytest.mark.parametrize("role", ROLES)
def test_names_are_unique_within_a_side(role):
    config = triton_models.config_of(role)
    for side in (config.input, config.output):
        names = [row.name for row in side]
        assert len(names) == len(set(names))
    assert config.name == role


@pytest.mark.parametrize("role", triton_models.ROLES)
def test_a_model_uses_all_declared_tensors_and_no_other(role):
    config = triton_models.config_of(role)
    folder = Path(triton_models.TEMPLATES, role, "1")
    source = "\n".join(path.read_text() for path in folder.glob("*.py"))
    quoted = set(re.findall(r'"(\w+)"', source))
    declared = {row.name for row in [*config.input, *config.output]}
    assert declared <= quoted
    assert {a or b for a, b in USED.findall(source)} <= declared


def test_every_step_joins_tensors_of_equal_type_and_shape():
    ensemble = triton_models.config_of("ensemble")
    pool = {row.name: (row.data_type, tuple(row.dims)) for row in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        model = declared(triton_models.config_of(step.model_name))
        for inner, outer in step.input_map.items():
            assert pool[outer] == model[inner], f"{step.model_name}.{inner} <- {outer}"
        for inner, outer in step.output_map.items():
            assert outer not in pool, f"{outer} is produced twice"
            pool[outer] = model[inner]
    for row in ensemble.output:
        assert pool[row.name] == (row.data_type, tuple(row.dims)), row.name


def test_every_step_maps_all_required_inputs_and_optional_ones_are_optional_on_both_sides():
    ensemble = triton_models.config_of("ensemble")
    optional, produced = {row.name for row in ensemble.input if row.optional}, set()
    for step in ensemble.ensemble_scheduling.step:
        for row in triton_models.config_of(step.model_name).input:
            if not row.optional:
                assert row.name in step.input_map
                assert step.input_map[row.name] not in optional
            elif row.name in step.input_map:
                assert step.input_map[row.name] in optional | produced
        produced |= set(step.output_map.values())


def test_the_detokenizer_sees_engine_outputs_only_and_the_ensemble_gives_no_tokenizer_output():
    """A decoupled engine splits an ensemble: Triton refuses to load one that mixes the sides."""
    ensemble = triton_models.config_of("ensemble")
    tokenizer, engine, detokenizer = ensemble.ensemble_scheduling.step
    assert set(detokenizer.input_map.values()) <= set(engine.output_map.values())
    assert not {row.name for row in ensemble.output} & set(tokenizer.output_map.values())


def test_chunks_stay_in_order():
    """One detokenizer instance without dynamic batching keeps the order of responses."""
    config = triton_models.config_of("detokenizer")
    assert [group.count for group in config.instance_group] == [1]
    assert not config.HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("role", "rows"),
    [
        ("ensemble", (*tensors.INPUTS, *tensors.OUTPUTS)),
        ("engine", tensors.STOP_INPUTS),
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
