"""Time and memory of a quantization for the PyTorch runtime, of a random model of a real size.

usage: python -m tests.bench.quantization SHAPE FORM FOLDER [PYTHON]
  SHAPE   one of SHAPES       FORM   fp8, nvfp4, int4_awq or w4a8_awq
  FOLDER  for the weights and the checkpoint: three bytes a parameter
  PYTHON  with nvidia-modelopt and its transformers; this one by default

Nothing is installed or fetched. The checkpoint is checked as `build` checks it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from build_engines.gpu import verify
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.quantization import calibration_text, quantized_step
from build_engines.gpu.quantization.calibration_text import CalibrationText
from tests.fixtures.random_model import byte_level_tokenizer

# family, hidden, intermediate, layers, heads, key-value heads, vocabulary
SHAPES = {
    "llama-tiny": ("llama", 256, 512, 2, 8, 4, 512),
    "llama-1b": ("llama", 2048, 8192, 16, 32, 8, 128_256),
    "llama-8b": ("llama", 4096, 14_336, 32, 32, 8, 128_256),
    "qwen-2b": ("qwen3", 2048, 6144, 28, 16, 8, 151_936),
    "qwen-8b": ("qwen3", 4096, 12_288, 36, 32, 8, 151_936),
}


def write_weights(shape: str, folder: Path) -> int:
    """Writes random weights in bfloat16, and returns how many there are."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    family, hidden, intermediate, layers, heads, kv_heads, vocabulary = SHAPES[shape]
    byte_level_tokenizer().save_pretrained(folder)
    config = AutoConfig.for_model(
        family,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        vocab_size=vocabulary,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    return sum(each.numel() for each in model.parameters())


def main(shape: str, form: str, folder: str, python: str = sys.executable) -> None:
    weights, target = Path(folder) / "weights", Path(folder) / "quantized"
    options = GpuOptions.model_validate({"quantization": form})
    parameters = write_weights(shape, weights)
    texts = CalibrationText(Path(folder), None, options.calibration_samples)
    if not texts.is_done:
        texts.run(sys.stdout.write)
    began = time.monotonic()
    arguments = quantized_step.arguments(options, weights, texts.folder, target)
    program = [python, "-I", str(quantized_step.PROGRAM), *arguments]
    said = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = {
        "shape": shape,
        "form": form,
        "parameters": parameters,
        "texts": len(calibration_text.read(texts.folder / calibration_text.FILE, 10**6)),
        "seconds": round(time.monotonic() - began, 1),
        "host_gb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6, 2),
        "program": said.splitlines()[-1],
        "checkpoint_gb": round(sum(f.stat().st_size for f in target.iterdir()) / 1e9, 3),
    }
    began = time.monotonic()
    verify.checkpoint(target, weights, options)
    figures["verify_seconds"] = round(time.monotonic() - began, 1)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
