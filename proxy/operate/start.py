"""Reads the models file, checks the machine, and builds, for the commands of `cli`."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import NoReturn

from build_engines.errors import (
    INSTALL_BUILD_TOOLS,
    BuildError,
    MissingPackage,
    UnservableFolder,
)
from build_engines.models_file import Entry, ModelsFile, ModelsFileError, RemoteEntry
from proxy.domain.errors import LaunchError, ModelLoadingFailed
from proxy.models import policy
from proxy.operate import store
from proxy.operate.administration.answers import show_table
from proxy.operate.triton_server import binaries, folders, ports
from proxy.pools.discovery import source_url
from proxy.pools.discovery.source import InvalidSource
from proxy.server import tls
from proxy.server.stop import STOPPING
from proxy.settings import ANY_CALLERS, FRONTS, Settings, environment

Say = Callable[[str], None]


def settled(settings: Settings) -> Settings:
    """Fills in what the settings leave open: the store, the models file, the name of a folder.

    Raises:
        LaunchError: an ONNX folder can only be named with the build tools, which are missing.
    """
    settings = folders.with_shipped_demo(store.settled(settings))
    if settings.model_path is None or settings.model_id is not None:
        return settings
    (name,) = models(settings).models
    return settings.model_copy(update={"model_id": name})


def models(settings: Settings) -> ModelsFile:
    with _errors():
        return policy.models(settings)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except UnservableFolder as error:
        raise ModelLoadingFailed(error.folder, error.reason) from None
    except (ModelsFileError, MissingPackage) as error:
        raise LaunchError(str(error)) from None
    except BuildError as error:
        raise LaunchError(f"build: {error}") from None


def entries(settings: Settings) -> Mapping[str, Entry]:
    """The entries of models.yaml; none where there is no such file."""
    return models(settings).models if policy.has_models(settings) else {}


def check_remote(settings: Settings) -> None:
    """
    Raises:
        LaunchError: TRITON_URL is wrong, or a setting has no effect on a Triton of others.
    """
    try:
        source_url.parse(settings.triton_source)
    except InvalidSource as error:
        raise LaunchError(f"TRITON_URL: {error}") from None
    if settings.triton_url is not None and settings.default_max_tokens is not None:
        raise LaunchError(
            "DEFAULT_MAX_TOKENS has no effect here, because `build` writes it into the tokenizer: "
            "set it where the models of that Triton are built"
        )


def bound(settings: Settings) -> socket.socket:
    """The proxy's socket, which does not listen yet.

    Raises:
        LaunchError: a secret that models.yaml names is not set; the port is taken; strangers could
            call without a key, or read the keys of others; or the files for TLS cannot be used.
    """
    if policy.has_models(settings):
        try:
            policy.secrets(models(settings).models, environment())
        except ModelsFileError as error:
            raise LaunchError(str(error)) from None
    tls.configured(settings)
    sock = ports.bind(settings.host, settings.port, "PORT")
    address = ip_address(sock.getsockname()[0].partition("%")[0])
    if not address.is_loopback and (danger := _danger(settings)) is not None:
        sock.close()
        raise LaunchError(f"HOST={settings.host}: {danger}")
    return sock


def _danger(settings: Settings) -> str | None:
    """Why these settings may serve this machine only."""
    if settings.auth == "off":
        return None
    if not settings.is_authenticated:
        return (
            f"without keys the proxy serves this machine only. Set {ANY_CALLERS}, or AUTH=off "
            "to let everybody in who reaches it"
        )
    has_front = settings.trusted_fronts or environment().get(FRONTS)
    if settings.tls_cert_file is None and not has_front and settings.plaintext == "off":
        return (
            "callers' keys would travel in clear text. Set TLS_CERT_FILE and TLS_KEY_FILE; or, "
            "behind a front that has TLS, FORWARDED_ALLOW_IPS (or TRUSTED_FRONTS) to its address; "
            "or PLAINTEXT=on where nobody else can read the network, as in a container whose port "
            "is published to this machine only"
        )
    return None


def prepared(settings: Settings, say: Say) -> tuple[Settings, ModelsFile]:
    """Checks the machine and builds stale models. Returns settings with the build's folder."""
    from proxy.operate.doctor import machine

    machine.require(*machine.runtime(), *machine.triton_ports(settings))
    found = models(settings)
    if not found.built:
        raise LaunchError(
            f"{settings.models_file}: every model has runtime: remote, so a tritonserver here "
            "would have none. Run `triton-openai proxy`"
        )
    settings = folders.with_own_artifacts(settings, found, say)
    machine.require(*machine.room(settings))
    build(settings, found, (), say)
    return settings, found


def build(settings: Settings, models: ModelsFile, only: Sequence[str], say: Say) -> None:
    """Builds what is stale. Its children die on a signal.

    Raises:
        ModelLoadingFailed: a model cannot be built.
        LaunchError: a name is unknown, or a build needs tools that are not installed.
    """
    from build_engines.build import build_all, needing_tools
    from proxy.operate.doctor import machine

    with _errors(), children_die_on_signals():
        needing = needing_tools(models, settings.artifacts_dir, only=only)
        # In NVIDIA's container the packages are NVIDIA's.
        missing = [] if binaries.tritonserver() else machine.missing(machine.BUILD_TOOLS)
        if needing and missing:
            raise MissingPackage(
                f"the build of {', '.join(needing)} needs {', '.join(missing)}: run "
                f"{INSTALL_BUILD_TOOLS}"
            )
        build_all(models, settings.artifacts_dir, only=only, say=say)


@contextmanager
def children_die_on_signals() -> Iterator[None]:
    """During a build: a signal kills its child processes, so that nothing waits for them."""
    before = {number: signal.signal(number, _kill_children) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill_children(number: int, frame: FrameType | None) -> NoReturn:
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    raise SystemExit(128 + number)


def show_build(
    settings: Settings, models: ModelsFile, only: Sequence[str], tensorrt_llm: str | None, say: Say
) -> None:
    """Prints what `build` would do, with this version of TensorRT-LLM. Raises like `build`."""
    from build_engines.build import show_all
    from build_engines.gpu import toolkit

    with _errors():
        planned = None if tensorrt_llm is None else toolkit.planned_for(tensorrt_llm)
        show_all(models, settings.artifacts_dir, only=only, say=say, tensorrt_llm=planned)


def example(served: ModelsFile) -> str:
    """The model in the printed curl command."""
    return "demo" if "demo" in served.models else next(iter(served.models))


def show_models(models: ModelsFile, artifacts: Path) -> None:
    from build_engines.build import is_built

    rows = []
    for name, entry in models.models.items():
        weights, built = None, None
        if not isinstance(entry, RemoteEntry):
            weights, built = entry.weights, False
            with suppress(BuildError):
                built = is_built(name, entry, artifacts)
        rows.append((name, entry.aliases, entry.runtime, weights, built))
    show_table(("name", "aliases", "runtime", "weights", "built"), rows)
