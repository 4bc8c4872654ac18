"""A Hugging Face folder -> an ONNX folder, by onnxruntime-genai's model builder.

Runs in a process of its own: the builder needs torch, and its memory, only for this minute.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from build_engines.errors import BuildError
from build_engines.onnx_folder import CONFIG

LAST_LINES = 5


def is_exported(folder: Path) -> bool:
    """Whether the folder is an ONNX folder already, as people download them."""
    return (folder / CONFIG).is_file()


def export(weights: Path, target: Path, *, precision: str, log: Path) -> None:
    """Writes genai_config.json, model.onnx and its data to `target`.

    Raises:
        BuildError: the builder failed; its last words are in the message, all of them in `log`.
    """
    cache = target.with_name("cache")
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command += ["-i", str(weights), "-o", str(target), "-p", precision, "-e", "cpu"]
    # KV caches that slide with the window hold no whole row, which the runtime's rows are.
    command += ["-c", str(cache), "--extra_options", "windowed_kv_cache=false"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    with log.open("wb") as output:
        result = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False
        )
    shutil.rmtree(cache, ignore_errors=True)
    if result.returncode or not is_exported(target):
        words = log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
        raise BuildError(
            f"onnxruntime-genai's builder could not convert {weights} "
            f"(exit status {result.returncode}): {' | '.join(words)} (whole output: {log})"
        )
    _drop_nulls(target / CONFIG)


def _drop_nulls(config: Path) -> None:
    """The builder writes unset search options as null, which onnxruntime-genai 0.11 cannot read."""
    fields = json.loads(config.read_text())
    fields["search"] = {k: v for k, v in fields["search"].items() if v is not None}
    config.write_text(json.dumps(fields, indent=4))
