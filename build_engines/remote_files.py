"""Fetches files of Hugging Face repositories and object stores.

Credentials are the libraries' own: huggingface_hub reads HF_TOKEN; obstore reads AWS_*,
GOOGLE_APPLICATION_CREDENTIALS and the like.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from build_engines.errors import BuildError
from build_engines.tool import Say
from build_engines.weights import HubRepository, StoredObjects

# Copies of the same weights in other formats, which some repositories carry.
NOT_FETCHED = ("original/*", "metal/*", "onnx/*", "consolidated*", "*.pth", "*.gguf")
CHUNK_BYTES = 16_000_000
PART = ".part"
ORIGIN = "fetched_from.json"  # the file that records a hub repository's name and commit


def fetch(
    source: HubRepository | StoredObjects, target: Path, say: Say, needs: str = "config.json"
) -> None:
    """Fills the folder; resumes an interrupted fetch. needs: see Fetch; of an ONNX graph in a hub
    repository, only that graph is fetched, and the texts beside it.

    Raises:
        BuildError: the source does not exist, access is denied, or the network failed.
    """
    with _errors_of(source):
        match source:
            case HubRepository():
                _repository(source, target, say, needs)
            case StoredObjects(is_archive=True):
                _archive(source, target)
            case StoredObjects():
                _objects(source, target, say)


def read(source: HubRepository | StoredObjects, name: str) -> bytes | None:
    """One small file, before the rest; None if it is missing or inside an archive.

    Raises:
        BuildError: as for `fetch`.
    """
    with _errors_of(source):
        match source:
            case HubRepository():
                return _hub_file(source, name)
            case StoredObjects(is_archive=True):
                return None
            case StoredObjects():
                return _object(source, name)


def _hub_file(source: HubRepository, name: str) -> bytes | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    with TemporaryDirectory() as folder:
        try:
            path = hf_hub_download(source.name, name, revision=source.revision, local_dir=folder)
        except LocalEntryNotFoundError:  # the hub could not be reached
            raise
        except EntryNotFoundError:
            return None
        return Path(path).read_bytes()


def _object(source: StoredObjects, name: str) -> bytes | None:
    from obstore.store import from_url

    try:
        return bytes(from_url(source.url).get(name).bytes())
    except FileNotFoundError:
        return None


def _repository(source: HubRepository, target: Path, say: Say, needs: str) -> None:
    """Fetches all files of one commit. ORIGIN records the commit, so a resumed fetch keeps it."""
    from huggingface_hub import snapshot_download

    commit = _commit(source, target / ORIGIN)
    pinned = "" if source.revision == commit else f"; to pin it: hf://{source.name}@{commit}"
    say(f"commit {commit} of {source.name}{pinned}")
    is_graph = needs.endswith(".onnx")
    snapshot_download(
        source.name,
        revision=commit,
        local_dir=target,
        allow_patterns=["*.json", "*.txt", f"{needs}*"] if is_graph else None,
        ignore_patterns=None if is_graph else list(NOT_FETCHED),
    )
    shutil.rmtree(target / ".cache", ignore_errors=True)


def _commit(source: HubRepository, origin: Path) -> str:
    """Resolves the revision or default branch to a commit once; later reads it from `origin`."""
    from huggingface_hub import HfApi

    if origin.is_file():
        return str(json.loads(origin.read_text())["commit"])
    commit = HfApi().repo_info(source.name, revision=source.revision).sha
    if commit is None:
        raise ValueError("the hub names no commit")
    origin.write_text(json.dumps({"source": str(source), "commit": commit}, indent=2) + "\n")
    return commit


def _objects(source: StoredObjects, target: Path, say: Say) -> None:
    """Fetches whole files; skips a file that already has its full size."""
    from obstore.store import from_url

    store = from_url(source.url)
    found = [meta for chunk in store.list() for meta in chunk]
    for number, meta in enumerate(found, 1):
        path = target / meta["path"]
        if path.is_file() and path.stat().st_size == meta["size"]:
            continue
        say(f"{meta['path']}, {meta['size'] / 1e6:.0f} MB ({number} of {len(found)})")
        _save(store.get(meta["path"]).stream(min_chunk_size=CHUNK_BYTES), path)


def _archive(source: StoredObjects, target: Path) -> None:
    """Unpacks an archive, without the single top folder that most archives have."""
    from obstore.store import from_url

    parent, _, name = source.url.rpartition("/")
    archive = target.with_name(f"{target.name}.{name}")
    if not archive.is_file():
        _save(from_url(parent).get(name).stream(min_chunk_size=CHUNK_BYTES), archive)
    shutil.rmtree(target)
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="data")
    archive.unlink()
    inside = list(target.iterdir())
    if len(inside) == 1 and inside[0].is_dir():
        lifted = target.with_name(f"{target.name}.lifted")
        inside[0].rename(lifted)
        target.rmdir()
        lifted.rename(target)


def _save(chunks: Iterator[bytes], path: Path) -> None:
    """Writes the file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + PART)
    with part.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
    part.rename(path)


@contextmanager
def _errors_of(source: HubRepository | StoredObjects) -> Iterator[None]:
    """Turns the libraries' errors into BuildError, with the first line of their message."""
    from obstore.exceptions import BaseError

    try:
        yield
    except Exception as error:
        known = (OSError, ValueError, tarfile.TarError, BaseError)
        if not isinstance(error, (*known, *_client_errors())):
            raise
        words = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise BuildError(f"{source} cannot be fetched: {words}") from error


def _client_errors() -> tuple[type[Exception], ...]:
    """What huggingface_hub's HTTP client raises: versions 2 use httpx2, versions 1 use httpx. The
    client of versions 0, requests, raises OSError.
    """
    clients = (sys.modules.get(name) for name in ("httpx2", "httpx"))
    return tuple(client.HTTPError for client in clients if client is not None)
