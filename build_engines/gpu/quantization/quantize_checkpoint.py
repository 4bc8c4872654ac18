"""Quantizes a Hugging Face checkpoint with nvidia-modelopt: a program of its own.

usage: python quantize_checkpoint.py --weights DIR --calibration FILE --output DIR --format FORMAT

It runs in the environment that `environment.py` makes, where this project is not installed. Formats
are those whose checkpoints TensorRT-LLM's PyTorch runtime reads. Nothing is fetched, and no code of
the checkpoint is run.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

# As in upstream's quantize_by_modelopt.py.
CONFIGS = {
    "fp8": "FP8_DEFAULT_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
    "int4_awq": "INT4_AWQ_CFG",  # blocks of 128 weights
    "w4a8_awq": "W4A8_AWQ_BETA_CFG",
}
COPIED = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
    "generation_config.json",
    "*.model",
    "*.tiktoken",
    "*.jinja",
)
EVERY = 16  # texts between two lines of progress


def main(arguments: argparse.Namespace) -> None:
    import modelopt.torch.quantization as mtq
    import torch
    from modelopt.torch.export import export_hf_checkpoint

    if arguments.format == "nvfp4" and not torch.cuda.is_available():
        sys.exit("nvidia-modelopt writes nvfp4 on a machine with a GPU only, and torch finds none")
    began = time.monotonic()
    samples = tokens_of(arguments.weights, texts_of(arguments.calibration), arguments.tokens)
    model = load(arguments.weights, arguments.dtype)
    report(f"loaded {arguments.weights} on {model.device} as {model.dtype}")

    def forward(model: Any) -> None:
        with torch.inference_mode():
            for number, ids in enumerate(samples, 1):
                model(ids.to(model.device), use_cache=False)
                if number % EVERY == 0:
                    report(f"calibrating: {number} of {len(samples)} texts")

    mtq.quantize(model, recipe(mtq, arguments.format, arguments.kv_cache), forward_loop=forward)
    report("writing the checkpoint")
    with torch.inference_mode():
        export_hf_checkpoint(model, export_dir=arguments.output)
    copy_tokenizer(arguments.weights, arguments.output)
    memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
    report(f"done after {time.monotonic() - began:.0f} s; GPU memory {memory:.1f} GB at most")


def texts_of(file: Path) -> list[str]:
    return [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]


def tokens_of(weights: Path, texts: list[str], longest: int) -> list[Any]:
    """Token ids [1, n] of each text, n at most `longest`. One at a time: no padding is measured."""
    import torch

    encode = encoder(weights)
    found = [torch.tensor([encode(text)[:longest]]) for text in texts]
    return [ids for ids in found if ids.shape[1] > 1]


def encoder(weights: Path) -> Callable[[str], list[int]]:
    """tokenizer.json is read without its Python class, which may be one of transformers 5."""
    if (file := weights / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        fast = Tokenizer.from_file(str(file))
        fast.no_truncation()
        fast.no_padding()
        return lambda text: list(fast.encode(text).ids)
    from transformers import AutoTokenizer

    slow = AutoTokenizer.from_pretrained(weights, trust_remote_code=False)
    return lambda text: list(slow(text).input_ids)


def load(weights: Path, dtype: str) -> Any:
    """The model, on all GPUs that it needs; on the CPU where there is none."""
    import torch
    from transformers import AutoModelForCausalLM

    placed = {"device_map": "auto"} if torch.cuda.is_available() else {}
    wanted = "auto" if dtype == "auto" else getattr(torch, dtype)
    model = AutoModelForCausalLM.from_pretrained(
        weights, config=older_config(weights), dtype=wanted, trust_remote_code=False, **placed
    )
    return model.eval()


def older_config(weights: Path) -> Any:
    """The configuration, with the rotary embedding under the names before transformers 5.

    Transformers 5 writes `rope_parameters`. Older ones ignore it and take the default base, without
    an error; TensorRT-LLM 1.2 reads the checkpoint with an older one.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(weights, trust_remote_code=False)
    written = json.loads((weights / "config.json").read_text(encoding="utf-8"))
    rope = written.get("rope_parameters")
    if rope is None or "rope_theta" in written:
        return config
    if any(isinstance(value, dict) for value in rope.values()):
        sys.exit("config.json has rope_parameters for each kind of layer: not supported")
    config.rope_theta = rope["rope_theta"]
    scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
    config.rope_scaling = None if scaling.get("rope_type") == "default" else scaling
    return config


def recipe(mtq: Any, name: str, kv_cache: str) -> dict[str, Any]:
    """Model-Optimizer's configuration for the format and the KV cache."""
    found: dict[str, Any] = copy.deepcopy(getattr(mtq, CONFIGS[name]))
    if kv_cache == "fp8":
        found["quant_cfg"].update(copy.deepcopy(mtq.FP8_KV_CFG["quant_cfg"]))
    return found


def copy_tokenizer(weights: Path, output: Path) -> None:
    """Copies the files that quantization does not change, as they were published."""
    for pattern in COPIED:
        for file in weights.glob(pattern):
            if file.is_file():
                shutil.copyfile(file, output / file.name)


def report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--weights", type=Path, required=True, help="a Hugging Face folder")
    parser.add_argument("--calibration", type=Path, required=True, help="JSON lines with `text`")
    parser.add_argument("--output", type=Path, required=True, help="the folder to fill")
    parser.add_argument("--format", choices=CONFIGS, required=True)
    parser.add_argument("--kv_cache", choices=("auto", "fp8"), default="auto")
    parser.add_argument(
        "--dtype", choices=("auto", "float16", "bfloat16", "float32"), default="auto"
    )
    parser.add_argument("--tokens", type=int, default=512, help="of a text that are measured")
    return parser.parse_args(words)


if __name__ == "__main__":
    main(parsed(sys.argv[1:]))
