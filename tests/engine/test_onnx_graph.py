"""The build's changes of a graph: the same numbers for less work."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from build_engines import onnx_agreement, onnx_build, onnx_graph, onnx_int8
from build_engines.machine import CPU_INFO, VNNI, adds_int8_exactly, is_x86
from build_engines.models_file import OnnxEntry, OnnxOptions
from build_engines.onnx_build import ChosenPrecision
from build_engines.onnx_folder import LOGITS_FROM, DecoderConfig, Graph
from onnx_cpu.decoder import (
    CPU_FLAGS,
    LEAST_CHUNK,
    PREFILL_SCORES_BYTES,
    DecoderSpec,
    OnnxDecoder,
    UnservableModel,
    check_cpu,
)
from onnx_cpu.kv_rows import KvOverflow
from tests.fixtures.families import COMMON
from tests.fixtures.random_model import make

IDS = [7 + at * at % 90 for at in range(40)]


@pytest.fixture(scope="module")
def weights(artifacts: Path) -> Path:
    return artifacts / "weights" / "llama"


def export(weights: Path, folder: Path, *, by_token: bool) -> Path:
    onnx_build.export(
        weights,
        folder,
        chosen=ChosenPrecision("int8", "for a test", by_token=by_token),
        log=folder.with_name("log"),
        say=lambda line: None,
    )
    return folder


@pytest.fixture(scope="module")
def exported(weights: Path, tmp_path_factory) -> Path:
    """As the builder quantizes: per block."""
    return export(weights, tmp_path_factory.mktemp("int8") / "engine", by_token=False)


@pytest.fixture(scope="module", params=[*COMMON, "gemma2"])
def by_token(request, tmp_path_factory) -> tuple[Path, Path]:
    """A family's weights, and its folder, quantized per token."""
    if not adds_int8_exactly(is_x86=is_x86(), cpu_info=CPU_INFO.read_text()):
        pytest.skip("needs VNNI")
    folder = tmp_path_factory.mktemp(request.param)
    make(request.param, folder / "weights")
    return folder / "weights", export(folder / "weights", folder / "engine", by_token=True)


def decoder(folder: Path) -> OnnxDecoder:
    return OnnxDecoder(folder, threads=1, rows=8, context_length=128)


def test_logits_are_computed_from_the_wanted_token_on(artifacts):
    one = decoder(artifacts / "llama" / "engine")
    whole = one.prefill(0, IDS, 0, 0).copy()
    assert len(whole) == len(IDS)
    for wanted in (0, 1, 20, len(IDS) - 1):
        found = one.prefill(1, IDS, 0, wanted)
        np.testing.assert_allclose(found, whole[wanted:], rtol=1e-5, atol=1e-5)
    assert np.array_equal(one.kv.read(0, 0, len(IDS)), one.kv.read(1, 0, len(IDS)))


def test_a_graph_without_that_input_gives_the_same_logits(artifacts, tmp_path):
    import onnx

    folder = artifacts / "llama" / "engine"
    model = onnx.load(folder / DecoderConfig.read(folder).filename)
    graph = model.graph
    graph.input.remove(next(one for one in graph.input if one.name == LOGITS_FROM))
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "genai_config.json").write_bytes((folder / "genai_config.json").read_bytes())
    plain, ours = decoder(tmp_path), decoder(folder)
    for wanted in (0, len(IDS) - 1):
        expected = ours.prefill(0, IDS, 0, wanted).copy()
        np.testing.assert_allclose(plain.prefill(0, IDS, 0, wanted), expected, rtol=1e-5, atol=1e-5)


def test_int8_is_near_fp32_and_rows_do_not_see_each_other(exported, weights):
    agreement = onnx_agreement.measure(str(weights), str(exported))
    assert agreement.argmax > 0.9
    assert agreement.divergence < 0.01
    one = decoder(exported)
    for row in range(4):
        one.prefill(row, IDS[row:], 0, 0)
    past = np.array([len(IDS) - row for row in range(4)])
    together = one.decode(np.array([3, 4, 5, 6]), past).copy()
    assert np.array_equal(one.decode(np.array([3]), past[:1])[0], together[0])


def test_gate_and_up_projection_are_one_matmul(exported):
    config = DecoderConfig.read(exported)
    graph = Graph.read(exported / config.filename)
    import onnx

    nodes = onnx.load(exported / config.filename, load_external_data=False).graph.node
    matmuls = [node.name for node in nodes if node.op_type == "MatMulNBits"]
    assert len(matmuls) == 4 * config.layers + 1
    assert graph.parameters > 0


def test_quantized_models_keep_keys_values_and_embeddings_in_16_bits(artifacts, exported):
    import onnx

    folders = {np.float32: artifacts / "llama" / "engine", np.float16: exported}
    if not is_x86():
        pytest.skip("only on x86")
    for wanted, folder in folders.items():
        one, config = decoder(folder), DecoderConfig.read(folder)
        assert one.kv.shape.dtype is wanted
        nodes = onnx.load(folder / config.filename, load_external_data=False).graph.node
        halves = [node.input[0] for node in nodes if node.op_type == "Cast" and not node.name]
        assert any("embed_tokens" in name for name in halves) is (wanted is np.float16)


def test_keys_beyond_16_bits_are_an_error(exported, tmp_path):
    import onnx
    from onnx import numpy_helper

    if not is_x86():
        pytest.skip("only on x86")
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    path = tmp_path / DecoderConfig.read(tmp_path).filename
    model = onnx.load(path)
    projection = next(one for one in model.graph.node if "attn/qkv_proj" in one.name)
    scales = next(one for one in model.graph.initializer if one.name == projection.input[2])
    scales.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scales) * 1e6, scales.name))
    onnx.save(model, path)
    one = decoder(tmp_path)
    with pytest.raises(KvOverflow, match="precision: fp32"):
        one.prefill(0, IDS, 0, 0)
    with pytest.raises(KvOverflow) as caught:
        one.decode(np.array([3, 4]), np.array([0, 0]))
    assert caught.value.rows == [0, 1]


def test_a_prefill_with_a_cache_of_16_bits_allocates_few_scores(exported):
    if not is_x86():
        pytest.skip("only on x86")
    heads = DecoderSpec.read(exported).heads
    for context_length, wanted in (
        (1024, PREFILL_SCORES_BYTES // (4 * heads * 1024)),
        (1_000_000, LEAST_CHUNK),
    ):
        one = OnnxDecoder(exported, threads=1, rows=2, context_length=context_length)
        assert one.most_tokens == wanted


def test_int8_per_token_is_near_fp32(by_token):
    weights, engine = by_token
    agreement = onnx_agreement.measure(str(weights), str(engine))
    assert agreement.argmax > 0.9
    assert agreement.divergence < 0.02


def test_a_row_computes_the_same_whatever_the_others_are(by_token):
    one = decoder(by_token[1])
    for row in range(8):
        one.prefill(row, IDS[row:], 0, 0)
    ids, past = np.arange(3, 11), np.array([len(IDS) - row for row in range(8)])
    together = one.decode(ids, past).copy()
    for rows in (1, 3):
        assert np.array_equal(one.decode(ids[:rows], past[:rows]), together[:rows])


def test_int8_per_token_computes_logits_from_the_wanted_token_on(by_token):
    one = decoder(by_token[1])
    whole = one.prefill(0, IDS, 0, 0).copy()
    found = one.prefill(1, IDS, 0, len(IDS) - 1)
    np.testing.assert_allclose(found, whole[-1:], rtol=1e-5, atol=1e-5)


def test_only_the_head_leaves_tokens_out():
    import onnxruntime as ort
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Relu", ["x"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "w"], ["logits"]),
        helper.make_node("Neg", ["hidden"], ["other"]),
    ]
    x, *outputs = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name in ("x", "logits", "other")
    )
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 2], [1.0] * 8)
    graph = helper.make_graph(nodes, "g", [x], outputs, [weight])
    onnx_graph._add_logits_from(graph, "logits")
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    given = {"x": np.ones((1, 3, 4), np.float32), LOGITS_FROM: np.array([2])}
    logits, other = ort.InferenceSession(model.SerializeToString()).run(None, given)
    assert (logits.shape, other.shape) == ((1, 1, 2), (1, 3, 4))


def test_the_head_has_activations_of_16_bits(by_token):
    import onnx
    import onnxruntime as ort
    from onnx import numpy_helper

    config = DecoderConfig.read(by_token[1])
    model = onnx.load(by_token[1] / config.filename)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    head = next(one for one in model.graph.node if one.name.startswith("/lm_head"))
    weights, scales = (numpy_helper.to_array(tensors[head.input[at]]) for at in (1, 3))
    last = next(one for one in model.graph.node if one.op_type == "Squeeze")
    names = [f"{LOGITS_FROM}/hidden", last.output[0]]
    new = set(names) - {one.name for one in model.graph.output}
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in new)
    session = ort.InferenceSession(model.SerializeToString())
    hidden, found = session.run(names, onnx_agreement.prefill_feeds(session, config, IDS))
    exact = hidden.astype(np.float64) @ (weights * scales.astype(np.float64))
    assert np.abs(found - exact).max() < 1e-4 * np.abs(exact).max()


def test_projections_are_quantized_per_token_but_the_worst_two(by_token):
    import onnx

    config = DecoderConfig.read(by_token[1])
    nodes = onnx.load(by_token[1] / config.filename, load_external_data=False).graph.node
    kinds = [node.op_type for node in nodes]
    assert kinds.count("MatMulIntegerToFloat") == 4 * config.layers - 2 + 1
    assert kinds.count("MatMulNBits") == 2
    assert kinds.count("MatMul") == 1  # adds the two bytes of the head


def test_smoothing_scales_follow_outliers_and_are_shared_by_a_head():
    random = np.random.default_rng(0)
    activations = random.normal(size=(64, 16)).astype(np.float32)
    activations[:, 5] *= 100
    weights = random.normal(size=(16, 8)).astype(np.float32)
    scales = onnx_int8.best_scales(activations, weights)
    assert scales.argmax() == 5
    shared = onnx_int8.best_scales(activations, weights, (2, 2, -1)).reshape(2, 2, 4)
    assert np.array_equal(shared[:, 0], shared[:, 1])


def test_scales_for_exact_activations_are_better_for_the_weights():
    ratios = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        widths = np.exp(random.normal(size=(2, 96)) * [[2], [1]]).astype(np.float32)
        activations = random.normal(size=(64, 96)).astype(np.float32) * widths[0]
        weights = random.normal(size=(96, 64)).astype(np.float32) * widths[1][:, None]
        exact = np.square(activations @ weights).sum(1)
        errors = []
        for is_exact in (True, False):
            scales = onnx_int8.best_scales(activations, weights, is_exact=is_exact)[:, None]
            steps = np.abs(weights * scales).max(0) / onnx_int8.LARGEST
            rounded = np.rint(weights * scales / steps) * steps / scales
            errors.append((np.square(activations @ (weights - rounded)).sum(1) / exact).mean())
        ratios.append(errors[0] / errors[1])
    assert np.mean(ratios) < 0.95, ratios


@pytest.mark.parametrize("channels", [np.zeros(8), np.full(8, 1e-30)])
def test_smoothing_scales_of_silent_channels_are_finite(channels):
    scales = onnx_int8.best_scales(np.tile(channels, (4, 1)).astype(np.float32), np.zeros((8, 3)))
    assert np.isfinite(scales).all()
    assert (scales > 0).all()


@pytest.mark.parametrize(
    ("architecture", "flags", "wanted"),
    [
        ("x86_64", "flags : fpu avx2 avx512f avx512_vnni", True),
        ("x86_64", "flags : fpu avx2 avx_vnni", True),
        ("x86_64", "flags : fpu avx2 avx512f", False),
        ("x86_64", "", False),
        ("aarch64", "Features : fp asimd", True),
    ],
)
def test_a_cpu_without_vnni_is_refused(tmp_path, architecture, flags, wanted):
    is_x86 = architecture == "x86_64"
    assert adds_int8_exactly(is_x86=is_x86, cpu_info=flags) == wanted
    check_cpu(tmp_path, flags)
    if is_x86:  # others write no such file
        (tmp_path / onnx_int8.CPU_FLAGS).write_text(" ".join(VNNI))
    is_refused = pytest.raises(UnservableModel, match="build the model again on this machine")
    with contextlib.nullcontext() if wanted else is_refused:
        check_cpu(tmp_path, flags)


def test_the_build_and_the_engine_have_the_same_file_of_flags():
    assert onnx_int8.CPU_FLAGS == CPU_FLAGS


@pytest.mark.parametrize(
    ("parameters", "memory_gb", "wanted"),
    [
        (5e8, 16, True),
        (5e8, 4, False),
        (4e9, 128, False),
    ],
)
def test_memory_decides_the_form_of_int8(parameters, memory_gb, wanted):
    assert onnx_build.can_quantize_by_token(parameters, memory_gb * 10**9) == wanted


@pytest.mark.parametrize(
    ("parameters", "memory_gb", "wanted"),
    [(5e8, 1, "int8"), (7e9, 24, "int8"), (8e9, 16, "int4"), (2e9, 4, "int4")],
)
def test_memory_decides_the_precision_of_large_models(parameters, memory_gb, wanted):
    assert onnx_build.default_precision(parameters, memory_gb * 10**9).precision == wanted


def test_a_precision_of_models_yaml_counts():
    entry = OnnxEntry(weights=Path("w"), onnx=OnnxOptions(precision="fp32"))
    assert onnx_build.chosen_precision(entry, Path("w")).precision == "fp32"
