"""Converts a Hugging Face folder to an ONNX folder with onnxruntime-genai's model builder.

Runs in its own process, so that torch and its memory are gone afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from build_engines import tool
from build_engines.errors import BuildError
from build_engines.onnx_folder import CONFIG


def is_exported(folder: Path) -> bool:
    """Whether the folder is already an ONNX folder."""
    return (folder / CONFIG).is_file()


def command(weights: Path, target: Path, *, precision: str) -> list[str]:
    options = ["-i", str(weights), "-o", str(target), "-p", precision, "-e", "cpu"]
    options += ["-c", str(_cache(target))]
    # The runtime needs whole rows: a KV cache that slides with the window does not keep them.
    options += ["--extra_options", "windowed_kv_cache=false"]
    return [sys.executable, "-m", "onnxruntime_genai.models.builder", *options]


def export(weights: Path, target: Path, *, precision: str, log: Path, say: tool.Say) -> None:
    """Writes genai_config.json, model.onnx and its data to `target`.

    Raises:
        BuildError: the builder failed; the message has its last lines, `log` all of them.
    """
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    try:
        tool.run(
            command(weights, target, precision=precision),
            log=log,
            say=say,
            environment=environment,
        )
    except BuildError as error:
        raise BuildError(
            f"onnxruntime-genai's builder could not convert {weights}: {error}"
        ) from error
    finally:
        shutil.rmtree(_cache(target), ignore_errors=True)
    if not is_exported(target):
        raise BuildError(f"onnxruntime-genai's builder wrote no {CONFIG} (its output: {log})")
    _drop_nulls(target / CONFIG)


def _cache(target: Path) -> Path:
    return target.with_name("cache")


def _drop_nulls(config: Path) -> None:
    """Removes the nulls of unset search options, which onnxruntime-genai 0.11 rejects."""
    fields = json.loads(config.read_text())
    fields["search"] = {k: v for k, v in fields["search"].items() if v is not None}
    config.write_text(json.dumps(fields, indent=4))
