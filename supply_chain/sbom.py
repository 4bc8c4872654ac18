"""Writes the bill of materials of this environment: `make sbom`, CycloneDX 1.6 in JSON.

usage: python -m supply_chain.sbom FILE

The packages are those that are installed, torch among them, with their licences; cyclonedx-py reads
them, and checks what it writes against CycloneDX's schema. Equal environments give equal files.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = "1.6"


def command(file: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "cyclonedx_py", "environment", sys.executable),
        *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"),
        *("--spec-version", VERSION, "--output-format", "JSON", "--output-reproducible"),
        *("--validate", "--output-file", str(file)),
    ]


def main(file: Path) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    return subprocess.run(command(file), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
