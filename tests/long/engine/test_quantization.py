"""Quantization for the PyTorch runtime, for real: random models, nvidia-modelopt, this CPU.

The bounds on errors are a fifth to a third above what these models have; a scale that is wrong by a
quarter exceeds one. Not here: nvfp4, which nvidia-modelopt exports on a GPU only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from packaging.version import Version
from safetensors.torch import load_file, save_file

from build_engines.build import build_all
from build_engines.errors import BuildError
from build_engines.gpu.quantization import calibration_text
from build_engines.gpu.quantization.environment import Environment, installed_torch
from build_engines.gpu.toolkit import Toolkit
from build_engines.models_file import ModelsFile
from tests.fixtures.random_model import make
from tests.fixtures.stack import ROOT

TOOLKIT = Toolkit(version=Version("1.2.1"), examples=Path("/no-examples"))
THETA = 500_000.0  # not the default, which an older transformers takes where it finds none
# Wide enough for blocks of 128; the layers matter beside the residual stream, without chaos.
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "initializer_range": 0.04,
    "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
}
PROBE = "A ferry of 1204 tonnes leaves at 06:10; def f(x): return x * 3 + 1. Où est la gare ?"
FP8_LARGEST = 448.0
BLOCK = 128
Tensors = Mapping[str, torch.Tensor]


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "head_dim": 32}


def write_weights(family: str, folder: Path) -> Path:
    """The number of experts also gets its published name: transformers 5 writes another one."""
    make(family, folder, sizes={**SIZES, **(EXPERTS if family.endswith("_moe") else {})})
    if family.endswith("_moe"):
        config = json.loads((folder / "config.json").read_text())
        config["num_experts"] = EXPERTS["num_experts"]
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def models(weights: Path, **gpu: object) -> ModelsFile:
    given = {"memory_gb": 80, "architecture": "hopper", **gpu}
    entry = {"weights": str(weights), "runtime": "tensorrt_llm", "gpu": given}
    return ModelsFile.model_validate({"models": {"m": entry}})


def build(artifacts: Path, given: ModelsFile) -> list[str]:
    """Returns what was said of steps, installations and the end, without the notes."""
    said: list[str] = []
    build_all(given, artifacts, say=said.append, tensorrt_llm=TOOLKIT)
    return [line for line in said if any(word in line for word in ("[", ": built", "installing"))]


def share_environments(artifacts: Path, shared: Path) -> None:
    """All tests use one environment. It takes half a minute, so one process makes it."""
    artifacts.mkdir()
    shared.mkdir(exist_ok=True)
    (artifacts / "environments").symlink_to(shared)
    with FileLock(shared.with_suffix(".lock")):
        environment = Environment(artifacts, torch=installed_torch())
        if not environment.is_done:
            environment.run(print)


def dequantized(stored: Tensors) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors in 32 bits, under the names of the original."""
    found = {}
    for name, tensor in stored.items():
        prefix = name.removesuffix("weight")
        if name.endswith((".k_scale", ".v_scale")) or "scale" in name.split(".")[-1]:
            continue
        if tensor.dtype is torch.float8_e4m3fn:
            found[name] = tensor.float() * stored[f"{prefix}weight_scale"]
        elif tensor.dtype is torch.uint8:
            found[name] = _unpacked(tensor, stored, prefix)
        else:
            found[name] = tensor.float()
    return found


def _unpacked(packed: torch.Tensor, stored: Tensors, prefix: str) -> torch.Tensor:
    """[rows / 2, columns] of two's complement nibbles, the even row in the lower one."""
    signed = packed.to(torch.int16)
    nibbles = torch.stack((signed & 15, signed >> 4), dim=1).flatten(0, 1)
    numbers = torch.where(nibbles > 7, nibbles - 16, nibbles).float()
    scale = stored[f"{prefix}weight_scale"].float()
    if (second := stored.get(f"{prefix}weight_scale_2")) is not None:
        scale = (scale / second).to(torch.float8_e4m3fn).float() * second
    weight = numbers * scale.repeat_interleave(BLOCK, dim=1)
    before = stored.get(f"{prefix}pre_quant_scale")
    return weight if before is None else weight * before.float()


def stored_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def logits(weights: Path, tensors: Tensors | None = None) -> torch.Tensor:
    """[tokens, vocabulary] of PROBE, with the folder's own tensors or with these in their place."""
    with loaded(weights, tensors) as (model, encode), torch.inference_mode():
        return model(encode(PROBE)).logits[0].float()


def largest_inputs(weights: Path, texts: list[str]) -> dict[str, float]:
    """Linear module -> the largest number that it receives while the model reads the texts."""
    found: dict[str, float] = {}

    def watch(name: str) -> Callable[..., None]:
        def seen(module: object, given: tuple[torch.Tensor, ...]) -> None:
            found[name] = max(found.get(name, 0.0), given[0].abs().max().item())

        return seen

    with loaded(weights, None) as (model, encode), torch.inference_mode():
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_pre_hook(watch(name))
        for text in texts:
            model(encode(text))
    return found


@contextmanager
def loaded(weights: Path, tensors: Tensors | None) -> Iterator[tuple]:
    """The model in 32 bits, and text -> token ids [1, n]."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as copy:
        folder = weights
        if tensors is not None:
            folder = Path(shutil.copytree(weights, copy, dirs_exist_ok=True))
            whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
            save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
        model, read = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True
        )
        assert not read["missing_keys"]
        assert not read["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(weights)
    yield model.eval(), lambda text: tokenizer(text, return_tensors="pt").input_ids


def effective(name: str, found: Tensors) -> torch.Tensor:
    """A matrix times the norm before it, into which AWQ moves a part of the columns' scales."""
    layer = name[: name.index(".", name.index("layers.") + len("layers."))]
    norms = {"input_layernorm": "qkv", "post_attention_layernorm": ("gate", "up")}
    for norm, kinds in norms.items():
        if any(f".{kind}_proj." in name for kind in kinds):
            return found[name] * found[f"{layer}.{norm}.weight"].float()
    return found[name]


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found - wanted).norm() / wanted.norm()).item()


def configuration(folder: Path) -> tuple[dict, dict]:
    """config.json, and the quantization of hf_quant_config.json."""
    quantized = json.loads((folder / "hf_quant_config.json").read_text())
    return json.loads((folder / "config.json").read_text()), quantized["quantization"]


def check_numbers(engine: Path, weights: Path, *, matrix: float, bound: float) -> None:
    """Every matrix and the logits, against the original; pytest -rP shows the errors."""
    original, found = stored_tensors(weights), dequantized(stored_tensors(engine))
    names = [name for name in found if name.endswith("_proj.weight")]
    wanted = {name: effective(name, original) for name in names}
    read = {name: effective(name, found) for name in names}
    errors = {name: relative_error(read[name], wanted[name]) for name in names}
    worst = max(errors, key=lambda name: errors[name])
    whole = relative_error(logits(weights, found), logits(weights))
    sys.stdout.write(f"relative errors: {errors[worst]:.4f} in {worst}, logits {whole:.4f}\n")
    assert errors[worst] < matrix, f"{worst} differs by {errors[worst]:.4f} from the original"
    assert whole < bound, f"the logits differ by {whole:.4f} from the original's"
    for name in names:
        off = relative_error(1.25 * read[name], wanted[name])
        assert off > matrix, f"the bound would not show a wrong scale of {name}"


SAMPLES = 8
FP8 = {"quantization": "fp8", "kv_cache": {"dtype": "fp8"}, "calibration": {"samples": SAMPLES}}
INT4 = {"quantization": "int4_awq", "calibration": {"samples": SAMPLES}}
BUILD_IN_CHILD = """
import sys
from pathlib import Path
from tests.long.engine.test_quantization import build, models

if __name__ == "__main__":
    build(Path(sys.argv[1]), models(Path(sys.argv[2]), **eval(sys.argv[3])))
"""
INTERRUPTED_WITHIN_S = 300.0


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized") / "artifacts"
    shared = tmp_path_factory.getbasetemp().parent / "quantization-environments"
    share_environments(folder, shared)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights("llama", tmp_path_factory.mktemp("llama"))


def interrupt_while_it_quantizes(artifacts: Path, weights: Path, script: Path) -> None:
    """Kills a build, with all that it has started, once the program has read the weights."""
    script.write_text(BUILD_IN_CHILD)
    log = artifacts / "steps" / "m" / "quantized.log"
    child = subprocess.Popen(
        [sys.executable, str(script), str(artifacts), str(weights), repr(FP8)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    ends_at = time.monotonic() + INTERRUPTED_WITHIN_S
    while not (log.exists() and "loaded" in log.read_text()):
        assert child.poll() is None, "the build ended before it could be interrupted"
        assert time.monotonic() < ends_at
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def test_an_interrupted_quantization_is_done_again_and_what_was_done_before_it_is_kept(
    artifacts, llama, tmp_path
):
    interrupt_while_it_quantizes(artifacts, llama, tmp_path / "child.py")
    (half,) = (artifacts / "steps" / "m").glob("quantized-*")
    assert half.name.endswith(".unfinished")
    (half / "half").write_text("written")

    given = models(llama, **FP8)
    steps = ["m: [1/2] quantized", "m: [2/2] tables", "m: built, with 4096 tokens of context"]
    assert build(artifacts, given) == steps
    assert build(artifacts, given) == [], "a second run does nothing"
    engine = artifacts / "m" / "engine"
    assert not (engine / "half").exists()
    check_fp8(engine, llama)
    check_numbers(engine, llama, matrix=0.035, bound=0.09)


def check_fp8(engine: Path, weights: Path) -> None:
    config, written = configuration(engine)
    assert (written["quant_algo"], written["kv_cache_quant_algo"]) == ("FP8", "FP8")
    assert config["quantization_config"]["quant_algo"] == "FP8"
    assert config["rope_theta"] == THETA
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (engine / name).read_bytes() == (weights / name).read_bytes()
    stored = stored_tensors(engine)
    texts = calibration_text.read(calibration_text.SHIPPED, SAMPLES)
    inputs = largest_inputs(weights, list(texts))
    layers = [name for name in inputs if name != "lm_head"]
    assert len(layers) == 2 * 7
    for name in layers:
        assert stored[f"{name}.weight"].dtype is torch.float8_e4m3fn
        scale = stored[f"{name}.input_scale"]
        assert scale.dtype is torch.float32
        assert scale.item() * FP8_LARGEST == pytest.approx(inputs[name], rel=1e-3)
    assert stored["model.layers.1.self_attn.k_proj.k_scale"] >= 1
    assert stored["lm_head.weight"].dtype is torch.float32


def test_int4_awq_is_written_in_blocks_with_the_users_texts(artifacts, tmp_path):
    weights = write_weights("qwen3", tmp_path / "qwen3")
    texts = tmp_path / "texts.txt"
    texts.write_text(
        "The gulls are counted every morning.\n\nDie Uhr über dem Eingang geht noch.\n"
    )
    given = {**INT4, "calibration": {"file": str(texts)}}
    build(artifacts, models(weights, **given))
    engine = artifacts / "m" / "engine"
    (read,) = (artifacts / "steps" / "m").glob("calibration-*/train.jsonl")
    measured = [json.loads(line)["text"] for line in read.read_text().splitlines()]
    assert [text[:9] for text in measured] == ["The gulls", "Die Uhr ü"]

    _, written = configuration(engine)
    assert (written["quant_algo"], written["group_size"]) == ("W4A16_AWQ", 128)
    assert written["kv_cache_quant_algo"] is None
    stored = stored_tensors(engine)
    down = "model.layers.0.mlp.down_proj"
    assert stored[f"{down}.weight"].dtype is torch.uint8
    assert stored[f"{down}.weight"].shape == (256 // 2, 512)
    assert stored[f"{down}.weight_scale"].shape == (256, 512 // 128)
    check_numbers(engine, weights, matrix=0.15, bound=0.5)


@pytest.mark.parametrize(
    ("family", "form", "cache", "matrix", "bound"),
    [
        ("qwen2", "fp8", "auto", 0.035, 0.12),
        ("phi3", "fp8", "fp8", 0.035, 0.12),
        ("qwen3_moe", "fp8", "auto", 0.035, 0.12),
        ("llama", "int4_awq", "fp8", 0.15, 0.4),
        ("qwen2", "w4a8_awq", "fp8", 0.15, 0.5),
    ],
)
def test_a_form_is_written_and_agrees_with_the_original(
    artifacts, tmp_path, family, form, cache, matrix, bound
):
    weights = write_weights(family, tmp_path / family)
    options = {"quantization": form, "kv_cache": {"dtype": cache}, "calibration": {"samples": 8}}
    build(artifacts, models(weights, **options))
    engine = artifacts / "m" / "engine"
    check_numbers(engine, weights, matrix=matrix, bound=bound)


def test_nvfp4_says_that_it_needs_a_gpu(artifacts, tmp_path):
    weights = write_weights("llama", tmp_path / "llama")
    given = models(weights, quantization="nvfp4", architecture="blackwell")
    with pytest.raises(BuildError, match=r"quantized: .*writes nvfp4 on a machine with a GPU only"):
        build(artifacts, given)


def test_a_file_that_cannot_be_read_is_refused_before_anything_runs(tmp_path, llama):
    bad = tmp_path / "texts.jsonl"
    bad.write_text('{"text": "fine"}\n{"txt": "misspelt"}\n')
    given = models(llama, quantization="fp8", calibration={"file": str(bad)})
    with pytest.raises(BuildError, match=r'texts\.jsonl:2: a line must be an object with a "text"'):
        build(tmp_path / "artifacts", given)
    assert list((tmp_path / "artifacts").rglob("*")) == []
