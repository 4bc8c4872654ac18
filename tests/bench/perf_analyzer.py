"""NVIDIA's perf_analyzer straight on an ensemble, where it is on PATH (see README)."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

REQUESTS_A_STREAM = 2


def path() -> str | None:
    return shutil.which("perf_analyzer")


def run(port: int, model: str, prompt: str, streams: int, max_tokens: int) -> dict[str, float]:
    """Every answer has all its tokens, so that requests a second tell tokens a second.

    Raises:
        RuntimeError: it failed; its last words are in the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        data, report = Path(folder, "data.json"), Path(folder, "report.csv")
        data.write_text(
            json.dumps({"data": [{"text_input": [prompt], "max_tokens": [max_tokens]}]})
        )
        command = [str(path()), "-m", model, "-i", "grpc", "-u", f"127.0.0.1:{port}"]
        command += ["--async", "--streaming", "--input-data", str(data), "-f", str(report)]
        command += ["--concurrency-range", str(streams)]
        command += ["--request-count", str(REQUESTS_A_STREAM * streams)]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not report.is_file():
            words = (done.stdout + done.stderr).strip().splitlines()[-3:]
            raise RuntimeError(f"perf_analyzer failed: {' | '.join(words)}")
        (row,) = csv.DictReader(report.read_text().splitlines())
    return {
        "tokens": REQUESTS_A_STREAM * streams * max_tokens,
        "tokens_per_s": float(row["Inferences/Second"]) * max_tokens,
        "wall_s": time.perf_counter() - began,
    }
