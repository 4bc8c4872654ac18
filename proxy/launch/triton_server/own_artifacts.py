"""A build folder of the user's own, where artifacts/ belongs to somebody else.

What is built there is taken as it is, by links. Called by `cli` before anything is built.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from triton_openai.build_engines.errors import BuildError
from triton_openai.build_engines.models_file import ModelsFile
from triton_openai.proxy.settings import Settings, environment

UNFINISHED = ".unfinished"
WRITTEN = ("", "model_repository", "triton", "weights")  # in artifacts/, at every start or build
Say = Callable[[str], None]


def settled(settings: Settings, models: ModelsFile, say: Say) -> Settings:
    """The settings with a folder that can be written to, in which the links are made.

    An ARTIFACTS_DIR that was named is taken as it is: a start that cannot write there says so.

    Raises:
        OSError: the user's own folder cannot be written.
    """
    chosen = place(settings)
    if chosen == settings.artifacts_dir:
        return settings
    taken = link(models, settings.artifacts_dir, chosen)
    known = f"; taken from there: {', '.join(taken)}" if taken else ""
    say(f"{settings.artifacts_dir.resolve()} is not yours to write: using {chosen}{known}")
    return settings.model_copy(update={"artifacts_dir": chosen})


def place(settings: Settings) -> Path:
    """The build folder: the one of the settings, else the user's own for it."""
    artifacts = settings.artifacts_dir
    if "artifacts_dir" in settings.model_fields_set or _is_writable(artifacts):
        return artifacts
    whole = artifacts.resolve()
    mark = hashlib.sha256(bytes(whole)).hexdigest()[:8]
    return _data_folder() / f"{whole.parent.name}-{mark}"


def link(models: ModelsFile, theirs: Path, own: Path) -> list[str]:
    """Links what is built, and weights that were fetched. Returns the models that are linked."""
    from triton_openai.build_engines.build import is_built

    (own / "weights").mkdir(parents=True, exist_ok=True)
    for folder in _whole_folders(theirs / "weights"):
        if not (own / "weights" / folder.name).exists():
            _link(own / "weights" / folder.name, folder)
    taken = []
    for name, entry in models.models.items():
        if (own / name).is_symlink():
            (own / name).unlink()
        try:
            is_current = is_built(name, entry, theirs)
        except BuildError:  # `build` says what is wrong
            is_current = False
        if is_current and not (own / name).exists():
            _link(own / name, theirs / name)
            taken.append(name)
    return taken


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)  # one that leads nowhere
    path.symlink_to(target.resolve(), target_is_directory=True)


def _whole_folders(store: Path) -> Iterator[Path]:
    if store.is_dir():
        for folder in store.iterdir():
            if folder.is_dir() and not folder.name.endswith(UNFINISHED):
                yield folder


def _is_writable(artifacts: Path) -> bool:
    """Where it does not exist yet: whether it can be made."""
    folders = [folder for name in WRITTEN if (folder := artifacts / name).is_dir()]
    if not folders:
        whole = artifacts.resolve()
        folders = [next(parent for parent in whole.parents if parent.is_dir())]
    return all(os.access(folder, os.W_OK | os.X_OK) for folder in folders)


def _data_folder() -> Path:
    """As the XDG Base Directory Specification has it."""
    given = environment().get("XDG_DATA_HOME", "")
    data = Path(given) if given.startswith("/") else Path.home() / ".local" / "share"
    return data / "triton-openai"
