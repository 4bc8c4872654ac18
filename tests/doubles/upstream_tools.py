"""Stand-ins for TensorRT-LLM's tools: they take upstream's flags, record them, and write what
upstream would write.

Their parsers are made of upstream's recorded arguments: one that upstream does not know ends the
stand-in as it would end the tool.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines.gpu.toolkit import Toolkit
from tests.upstream.parsers import parser

ROOT = Path(__file__).parents[2]
ALGORITHMS = {"fp8": "FP8", "nvfp4": "NVFP4", "int4_awq": "W4A16_AWQ", "int8_wo": "W8A16"}
SCRIPTS = {
    "quantize": "quantization/quantize.py",
    "convert_llama": "models/core/llama/convert_checkpoint.py",
    "convert_qwen": "models/core/qwen/convert_checkpoint.py",
    "convert_phi": "models/core/phi/convert_checkpoint.py",
    "guide_info": "generate_xgrammar_tokenizer_info.py",
}


def install(folder: Path, version: str = "1.2.1") -> Toolkit:
    """examples/, and bin/ with trtllm-build and the python3 for them all, which belongs on PATH."""
    for name, path in SCRIPTS.items():
        _write(folder / "examples" / path, name, folder, version)
    _write(folder / "bin" / "trtllm-build", "build", folder, version)
    python = folder / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return Toolkit(version=Version(version), examples=folder / "examples")


def calls(folder: Path) -> list[list[str]]:
    """[tool, argument, ...] of each call so far."""
    log = folder / "calls.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def misbehave(folder: Path, tool: str, how: str | None) -> None:
    """`exit`: a bad end half-way; `incomplete`: a good end with a file missing."""
    (folder / f"{tool}.misbehaviour").write_text(how or "")


def _write(path: Path, name: str, folder: Path, version: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.doubles.upstream_tools import main\nmain({name!r}, {str(folder)!r}, "
        f"{version!r})\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def main(name: str, folder: str, version: str) -> None:
    with (Path(folder) / "calls.jsonl").open("a") as log:
        log.write(json.dumps([name, *sys.argv[1:]]) + "\n")
    arguments = parser(name).parse_args()
    control = Path(folder) / f"{name}.misbehaviour"
    how = control.read_text() if control.exists() else ""
    target = Path(arguments.output_dir)
    target.mkdir(parents=True, exist_ok=True)
    if how == "exit":
        (target / "half").write_text("written")
        print("CUDA out of memory")  # noqa: T201  # as upstream does
        sys.exit(3)
    written = _outputs(name, arguments, version)
    for file, content in list(written.items())[: -1 if how == "incomplete" else None]:
        (target / file).write_text(json.dumps(content) if isinstance(content, dict) else content)


def _outputs(name: str, given: argparse.Namespace, version: str) -> dict[str, Any]:
    if name == "guide_info":
        return {"xgrammar_tokenizer_info.json": {"encoded_vocab": [], "stop_token_ids": []}}
    if name == "build":
        return _plan(given, version)
    mapping = {"tp_size": given.tp_size, "pp_size": given.pp_size}
    quantization = {"quant_algo": ALGORITHMS.get(getattr(given, "qformat", ""))}
    config = {"mapping": mapping, "quantization": quantization}
    return {"config.json": config, **_ranks(mapping, "safetensors")}


def _plan(given: argparse.Namespace, version: str) -> dict[str, Any]:
    checkpoint = json.loads((Path(given.checkpoint_dir) / "config.json").read_text())
    names = ("max_batch_size", "max_num_tokens", "max_seq_len")
    built = {name: getattr(given, name) for name in names}
    _adjust(built, given.max_draft_len or 0)
    config = {"version": version, "pretrained_config": checkpoint, "build_config": built}
    return {"config.json": config, **_ranks(checkpoint["mapping"], "engine")}


def _adjust(built: dict[str, int], drafts: int) -> None:
    """As builder.py does."""
    batch, longest = built["max_batch_size"], built["max_seq_len"]
    built["max_num_tokens"] = max(min(built["max_num_tokens"], longest * batch), 32)
    if drafts:
        built["max_seq_len"] += drafts
        built["max_num_tokens"] = max(built["max_num_tokens"], batch * (drafts + 1))


def _ranks(mapping: dict[str, int], suffix: str) -> dict[str, str]:
    world = mapping["tp_size"] * mapping["pp_size"]
    return {f"rank{rank}.{suffix}": f"rank {rank} of {os.getpid()}" for rank in range(world)}
