"""checkpoint: a quantized folder that is not what models.yaml says, or not whole, is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from build_engines.errors import BuildError
from build_engines.gpu import verify
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.quantization import checkpoint

Written = dict[str, tuple[str, tuple[int, ...], bytes]]
ONE = struct.pack("<f", 0.5)
NAN = struct.pack("<f", float("nan"))
ROWS, COLUMNS = 4, 256
PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj")
LAYERS = [f"model.layers.{n}.{name}" for n in (0, 1) for name in PROJECTIONS]
PLAIN: Written = {
    "model.embed_tokens.weight": ("F32", (2, 2), bytes(16)),
    "lm_head.weight": ("F32", (2, 2), bytes(16)),
}


def save(path: Path, tensors: Written) -> None:
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def fp8() -> Written:
    found = dict(PLAIN)
    for name in LAYERS:
        found[f"{name}.weight"] = ("F8_E4M3", (ROWS, COLUMNS), bytes(ROWS * COLUMNS))
        found[f"{name}.weight_scale"] = ("F32", (), ONE)
        found[f"{name}.input_scale"] = ("F32", (), ONE)
    return found


def int4() -> Written:
    found = dict(PLAIN)
    for name in LAYERS:
        found[f"{name}.weight"] = ("U8", (ROWS // 2, COLUMNS), bytes(ROWS // 2 * COLUMNS))
        found[f"{name}.weight_scale"] = ("BF16", (ROWS, 2), bytes([0, 60] * ROWS * 2))
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    weights = {f"{name}.weight": ("BF16", (ROWS, COLUMNS), bytes(2048)) for name in LAYERS}
    save(folder / "model.safetensors", {**PLAIN, **weights})
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def quantized(tensors: Written, algorithm: str, **more: object) -> Path:
        folder = tmp_path / "quantized"
        folder.mkdir()
        save(folder / "model.safetensors", tensors)
        (folder / "tokenizer.json").write_text("{}")
        about = {"quant_algo": algorithm, "exclude_modules": ["lm_head"], **more}
        (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": about}))
        config = {"quantization_config": {"quant_algo": algorithm}}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return quantized


def options(name: str, cache: str = "auto") -> GpuOptions:
    return GpuOptions.model_validate({"quantization": name, "kv_cache": {"dtype": cache}})


def test_whole_checkpoints_pass(source, write, tmp_path):
    verify.checkpoint(write(fp8(), "FP8"), source, options("fp8"))
    (tmp_path / "quantized").rename(tmp_path / "first")
    verify.checkpoint(write(int4(), "W4A16_AWQ", group_size=128), source, options("int4_awq"))


LAST = f"{LAYERS[-1]}.weight"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({LAST: ("BF16", (ROWS, COLUMNS), bytes(2048))}, "down_proj.weight is BF16, not F8_E4M3"),
        ({LAST: ("F8_E4M3", (COLUMNS, ROWS), bytes(1024))}, r"shape \(256, 4\), not \(4, 256\)"),
        ({LAST: None}, r"layers\.1\.mlp\.down_proj\.weight is missing"),
        ({f"{LAST}_scale": None}, "down_proj.weight_scale is missing"),
        ({f"{LAST}_scale": ("F8_E4M3", (), b"0")}, "weight_scale is F8_E4M3"),
        ({f"{LAST}_scale": ("F32", (2,), ONE * 2)}, r"weight_scale has the shape \(2,\), not"),
        ({f"{LAST}_scale": ("F32", (), bytes(4))}, "weight_scale is not above zero and finite"),
        ({f"{LAST}_scale": ("F32", (), NAN)}, "weight_scale has a number that is not finite"),
        ({f"{LAYERS[-1]}.input_scale": None}, "down_proj.input_scale is missing"),
        ({f"{LAYERS[-1]}.input_scale": ("F32", (), NAN)}, "input_scale is not above zero"),
        (
            {"model.embed_tokens.weight": ("F32", (4, 1), bytes(16))},
            r"shape \(4, 1\), not \(2, 2\)",
        ),
    ],
)
def test_a_tensor_that_is_wrong_is_named(source, write, changed, said):
    tensors = {**fp8(), **changed}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(BuildError, match=said):
        verify.checkpoint(write(kept, "FP8"), source, options("fp8"))


def test_every_layer_has_something_quantized_whatever_is_excluded(source, write):
    tensors = fp8()
    for name in LAYERS[3:]:
        tensors[f"{name}.weight"] = ("BF16", (ROWS, COLUMNS), bytes(2048))
    folder = write(tensors, "FP8", exclude_modules=["lm_head", "model.layers.1*"])
    with pytest.raises(BuildError, match="layer 1 has no quantized matrix"):
        verify.checkpoint(folder, source, options("fp8"))


def test_a_router_that_is_excluded_stays_as_it_was(source, write):
    tensors = fp8()
    tensors[LAST] = ("BF16", (ROWS, COLUMNS), bytes(2048))
    folder = write(tensors, "FP8", exclude_modules=["lm_head", "model.layers.1.mlp.down*"])
    verify.checkpoint(folder, source, options("fp8"))


def test_blocks_have_a_scale_each(source, write):
    tensors = int4()
    tensors[f"{LAST}_scale"] = ("BF16", (ROWS, 1), bytes(8))
    with pytest.raises(BuildError, match=r"weight_scale has the shape \(4, 1\), not \(4, 2\)"):
        verify.checkpoint(write(tensors, "W4A16_AWQ", group_size=128), source, options("int4_awq"))


@pytest.mark.parametrize(
    ("written", "wanted", "said"),
    [
        ({"algorithm": "NVFP4"}, options("fp8"), "with quant_algo NVFP4, not FP8"),
        ({"algorithm": "FP8"}, options("fp8", "fp8"), "with kv_cache_quant_algo None, not FP8"),
        (
            {"algorithm": "FP8", "kv_cache_quant_algo": "FP8"},
            options("fp8"),
            "with kv_cache_quant_algo FP8, not None",
        ),
        (
            {"algorithm": "FP8", "kv_cache_quant_algo": "FP8"},
            options("fp8", "fp8"),
            "there are no scales of the KV cache",
        ),
        ({"algorithm": "W4A16_AWQ", "group_size": 64}, options("int4_awq"), "group_size 64, not"),
    ],
)
def test_another_quantization_is_refused(source, write, written, wanted, said):
    with pytest.raises(BuildError, match=said):
        verify.checkpoint(write(fp8(), **written), source, wanted)


def test_files_that_are_missing_or_cut_off_are_named(source, write):
    folder = write(fp8(), "FP8")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BuildError, match=r"has no tokenizer\.json, which .*source has"):
        verify.checkpoint(folder, source, options("fp8"))
    (folder / "tokenizer.json").write_text("{}")
    model = folder / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(BuildError, match=r"model\.safetensors cannot be read"):
        verify.checkpoint(folder, source, options("fp8"))
    (folder / "hf_quant_config.json").unlink()
    with pytest.raises(BuildError, match=r"hf_quant_config\.json is missing"):
        verify.checkpoint(folder, source, options("fp8"))


@pytest.mark.parametrize("content", [b"", b"\x01", struct.pack("<Q", 9) + b"{", b"[" * 100])
def test_what_is_no_safetensors_file_is_refused(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(BuildError, match=r"model\.safetensors cannot be read"):
        checkpoint.tensors(tmp_path)
