"""Which models file and build folder a command uses, where the settings leave it open.

In a folder without models.yaml, it is the shipped demo, so `triton-openai serve` works from any
folder and leaves nothing there. If artifacts/ belongs to another user, a folder of the user's own
takes its place; models that are built in artifacts/ are used through links.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from build_engines.errors import BuildError
from build_engines.models_file import ModelsFile
from proxy.domain.errors import LaunchError
from proxy.settings import Settings, environment

UNFINISHED = ".unfinished"
WRITTEN = ("", "model_repository", "triton", "weights")  # in artifacts/, at every start or build
Say = Callable[[str], None]


def with_shipped_demo(settings: Settings) -> Settings:
    """Fills in the shipped models file and the user's data folder, where the settings name neither.

    A models.yaml or an artifacts/ in the working directory is used instead.
    """
    given, update = settings.model_fields_set, dict[str, Any]()
    has_file = settings.models_file.exists()
    if not has_file and settings.model_path is None and "models_file" not in given:
        update["models_file"] = Path(str(resources.files("demo_model") / "models.yaml"))
    if not has_file and not settings.artifacts_dir.exists() and "artifacts_dir" not in given:
        update["artifacts_dir"] = data_folder() / "artifacts"
    return settings.model_copy(update=update)


def models_file_of(model: str) -> Path:
    """The shipped models file of a small real model.

    Raises:
        LaunchError: there is none of this name.
    """
    shipped = {Path(file.name).stem: file for file in resources.files("demo_model").iterdir()
               if file.name.endswith(".yaml") and file.name != "models.yaml"}  # fmt: skip
    if model not in shipped:
        raise LaunchError(
            f"--model {model}: no such model is prepared; there is {', '.join(sorted(shipped))}. "
            "Any other one needs a models.yaml, or MODEL_PATH"
        )
    return Path(str(shipped[model]))


def with_own_artifacts(settings: Settings, models: ModelsFile, say: Say) -> Settings:
    """Returns settings with a writable build folder, after making the links in it.

    An explicit ARTIFACTS_DIR is not replaced: if it is not writable, the start fails.

    Raises:
        OSError: the user's own folder is not writable.
    """
    chosen = place(settings)
    if chosen == settings.artifacts_dir:
        return settings
    taken = link(models, settings.artifacts_dir, chosen)
    known = f"; taken from there: {', '.join(taken)}" if taken else ""
    say(f"{settings.artifacts_dir.resolve()} is not writable for you: using {chosen}{known}")
    return settings.model_copy(update={"artifacts_dir": chosen})


def place(settings: Settings) -> Path:
    """The build folder of the settings, or else the user's own in its place."""
    artifacts = settings.artifacts_dir
    if "artifacts_dir" in settings.model_fields_set or _is_writable(artifacts):
        return artifacts
    whole = artifacts.resolve()
    mark = hashlib.sha256(bytes(whole)).hexdigest()[:8]
    return data_folder() / f"{whole.parent.name}-{mark}"


def link(models: ModelsFile, theirs: Path, own: Path) -> list[str]:
    """Links built models and fetched weights. Returns the names of the linked models."""
    from build_engines.build import is_built

    (own / "weights").mkdir(parents=True, exist_ok=True)
    for folder in _whole_folders(theirs / "weights"):
        if not (own / "weights" / folder.name).exists():
            _link(own / "weights" / folder.name, folder)
    taken = []
    for name, entry in models.built.items():
        if (own / name).is_symlink():
            (own / name).unlink()
        try:
            is_current = is_built(name, entry, theirs)
        except BuildError:  # `build` reports it
            is_current = False
        if is_current and not (own / name).exists():
            _link(own / name, theirs / name)
            taken.append(name)
    return taken


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)  # a dangling link
    path.symlink_to(target.resolve(), target_is_directory=True)


def _whole_folders(store: Path) -> Iterator[Path]:
    if store.is_dir():
        for folder in store.iterdir():
            if folder.is_dir() and not folder.name.endswith(UNFINISHED):
                yield folder


def _is_writable(artifacts: Path) -> bool:
    """If it does not exist: whether it can be created."""
    folders = [folder for name in WRITTEN if (folder := artifacts / name).is_dir()]
    if not folders:
        whole = artifacts.resolve()
        folders = [next(parent for parent in whole.parents if parent.is_dir())]
    return all(os.access(folder, os.W_OK | os.X_OK) for folder in folders)


def data_folder() -> Path:
    """According to the XDG Base Directory Specification."""
    given = environment().get("XDG_DATA_HOME", "")
    data = Path(given) if given.startswith("/") else Path.home() / ".local" / "share"
    return data / "triton-openai"
