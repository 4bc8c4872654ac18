"""Packages that most installations never need, installed into this environment when one does.

torch, transformers and onnxruntime-genai build other models than the shipped demo. xgrammar holds
answers to a schema; it names torch and transformers as requirements, which it does not need here
(see model_repository/engine), so no extra of pyproject.toml can bring it without them. Called by
`start` and `building`, and by the command `install-build-tools`.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, resources, util
from pathlib import Path

from proxy.operate.packages import pip_step
from proxy.operate.packages.pip_step import Step
from proxy.processes.errors import LaunchError
from proxy.settings import Settings

PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One `pip install`, of a package or of a file of this project.

    `provides`: the packages whose presence shows that it is done; their versions are not changed.
    `is_complete`: the file names every dependency. Otherwise pip resolves them, and does not warn
    about dependencies of xgrammar, which are left out on purpose.
    """

    name: str
    provides: tuple[str, ...]
    file: str | None = None
    is_complete: bool = True

    @property
    def is_installed(self) -> bool:
        return not any(_version(package) is None for package in self.provides)

    def command(self, torch_index: str | None) -> list[str]:
        what = [self.name] if self.file is None else ["-r", str(_own(self.file))]
        if self.is_complete:
            return [*PIP, "--no-deps", *what]
        index = [] if torch_index is None else ["--index-url", torch_index]
        return [*PIP, "--no-warn-conflicts", *what, *index]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSet:
    """Packages that are installed together. `size`: on the disk."""

    name: str
    size: str
    sources: tuple[Source, ...]

    @property
    def is_installed(self) -> bool:
        return not self.missing

    @property
    def missing(self) -> list[Source]:
        return [source for source in self.sources if not source.is_installed]

    def by_hand(self, settings: Settings) -> str:
        """The commands that install the set, for an operator to paste into a shell."""
        commands = [source.command(settings.torch_index_url) for source in self.missing]
        return " && ".join(map(shlex.join, commands))


def build_tools() -> PackageSet:
    torch = _own("requirements-torch.txt").read_text(encoding="utf-8").strip()
    return PackageSet(
        name="torch, transformers and onnxruntime-genai",
        size="1 GB, or 5 GB where torch is a CUDA build",
        sources=(
            Source(
                name=torch, provides=("torch",), file="requirements-torch.txt", is_complete=False
            ),
            Source(
                name="requirements-build.lock",
                provides=(
                    *("transformers", "onnxruntime-genai", "onnx", "onnx-ir", "safetensors"),
                    *("huggingface-hub", "obstore"),
                ),
                file="requirements-build.lock",
            ),
        ),
    )


GUIDES = PackageSet(
    name="xgrammar",
    size="4 MB",
    sources=(Source(name="xgrammar==0.2.8", provides=("xgrammar",)),),
)


def ensure(wanted: PackageSet, needed_by: str, settings: Settings, say: Say) -> None:
    """Installs the set where it is missing.

    Args:
        needed_by: such as `the build of demo`.

    Raises:
        LaunchError: a setting forbids it, or it failed; the message says what to run.
    """
    if wanted.is_installed:
        return
    if settings.install_packages == "never":
        raise LaunchError(
            f"{needed_by} needs {wanted.name} ({wanted.size}), not installed here, and "
            f"INSTALL_PACKAGES is never: run {wanted.by_hand(settings)}"
        )
    say(f"{needed_by} needs {wanted.name} ({wanted.size}): installing into {sys.prefix}")
    install(wanted, settings, say)


def install_build_tools(settings: Settings, say: Say) -> None:
    """For the command of that name, before any build needs them; raises as `install` does."""
    for wanted in (GUIDES, build_tools()):
        if wanted.is_installed:
            say(f"{wanted.name}: installed already")
        else:
            install(wanted, settings, say)
    say("ready")


def install(wanted: PackageSet, settings: Settings, say: Say) -> None:
    """
    Raises:
        LaunchError: it failed; the message says what to run.
    """
    packages = Path(sysconfig.get_path("purelib"))
    if not os.access(packages, os.W_OK):
        by_hand = wanted.by_hand(settings)
        raise LaunchError(f"{packages} is not yours to write: as its owner, run {by_hand}")
    if util.find_spec("pip") is None:
        raise LaunchError(f"{sys.prefix} has no pip: add it, then run {wanted.by_hand(settings)}")
    missing = wanted.missing
    for number, source in enumerate(missing, 1):
        step = Step.named(
            f"{number}/{len(missing)}",
            source.name,
            torch_index=settings.torch_index_url or "",
        )
        if status := pip_step.run(step, source.command(settings.torch_index_url), say=say):
            raise LaunchError(
                f"{source.name} could not be installed: pip ended with exit status {status} and "
                f"its reason stands above: mend that, then run {wanted.by_hand(settings)}"
            )
    importlib.invalidate_caches()


def _own(name: str) -> Path:
    return Path(str(resources.files("build_engines") / name))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
