"""environment: what is installed, what its key depends on, and when it is made again."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from build_engines.gpu.quantization import environment
from build_engines.gpu.quantization.environment import Environment
from tests.fixtures.stack import ROOT

LOCK = (ROOT / "build_engines" / environment.LOCK).read_text()


def made(artifacts: Path, parent: Path) -> Environment:
    """An environment as the step leaves it, without its packages."""
    found = Environment(artifacts, torch="2.10.0")
    program = environment.python(found.folder)
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = found.folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (packages / environment.PARENT).write_text(f"{parent}\n")
    return found


def test_a_torch_that_is_there_is_used_and_never_installed(tmp_path):
    _, pip = Environment(tmp_path, torch="2.10.0a0").shown(tmp_path / "e")
    words = shlex.split(pip)
    assert words[words.index("install") + 1 : -1] == [
        "--no-deps",
        "--require-hashes",
        "--no-compile",
        "-r",
    ]
    assert Path(words[-1]).read_text() == LOCK


def test_without_one_torch_comes_first(tmp_path):
    venv, torch, lock = Environment(tmp_path, torch=None).shown(tmp_path / "e")
    assert shlex.split(venv)[1:3] == ["-m", "venv"]
    assert torch.endswith("requirements-torch.txt")
    assert environment.LOCK in lock


def test_the_key_depends_on_torch_and_not_on_the_folder(tmp_path):
    torches = ("2.10.0", "2.11.0", None)
    keys = [Environment(tmp_path, torch=torch).key for torch in torches]
    assert len(set(keys)) == 3
    assert Environment(tmp_path / "elsewhere", torch="2.10.0").key == keys[0]


def test_it_is_made_again_where_its_interpreter_or_its_parent_has_moved(tmp_path):
    (tmp_path / "parent").mkdir()
    found = made(tmp_path / "artifacts", tmp_path / "parent")
    assert found.is_done
    (tmp_path / "parent").rmdir()
    assert not found.is_done
    (tmp_path / "parent").mkdir()
    environment.python(found.folder).unlink()
    environment.python(found.folder).symlink_to(tmp_path / "no-python")
    assert not found.is_done


def test_the_lock_leaves_torch_out_and_has_a_hash_for_every_file():
    pins = re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK, re.MULTILINE)
    names = [name for name, _ in pins]
    assert ("nvidia-modelopt", "0.37.0") in pins
    assert "torch" not in names
    assert len(names) == len(set(names)) == len(re.findall(r"==.*\\\n +--hash=sha256:", LOCK))
    major, minor = map(int, dict(pins)["transformers"].split(".")[:2])
    assert (4, 48) <= (major, minor) < (4, 57), "what nvidia-modelopt 0.37 supports"
