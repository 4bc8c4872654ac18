"""Checks that folders of weights are complete; needs no GPU."""

from __future__ import annotations

from pathlib import Path

from build_engines.errors import BuildError
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.quantization import checkpoint as quantized_checkpoint
from build_engines.json_files import read_object

INDEX = "model.safetensors.index.json"


def weights(folder: Path) -> None:
    """Checks that a Hugging Face folder has its configuration and all files of its weights.

    Raises:
        BuildError: a file is missing. The other checks raise it, too.
    """
    present(folder, "config.json")
    if (folder / INDEX).is_file():
        files = set(read_object(folder / INDEX).get("weight_map", {}).values())
        present(folder, *sorted(files))
    elif not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise BuildError(f"{folder} has no weights: neither *.safetensors nor *.bin")


def checkpoint(folder: Path, source: Path, options: GpuOptions) -> None:
    """Checks a quantized Hugging Face folder. source: the weights that were quantized."""
    weights(folder)
    present(folder, "hf_quant_config.json")
    quantized_checkpoint.check(folder, source, options)


def present(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        if not path.is_file() or path.stat().st_size == 0:
            raise BuildError(f"{path} is {'empty' if path.exists() else 'missing'}")
