"""What commands do first: read the models file, check the machine, build. Called by `cli`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from build_engines.errors import MissingPackage, UnservableFolder
from build_engines.models_file import ModelsFile, ModelsFileError
from proxy.models import policy
from proxy.operate.packages import on_demand
from proxy.operate.triton_server import container, ports, shipped_demo
from proxy.processes.errors import LaunchError, ModelLoadingFailed
from proxy.server import tls
from proxy.settings import Settings, environment


def settled(settings: Settings, say: Callable[[str], None]) -> Settings:
    """Fills in what the settings leave open: the models file, and the name of a single folder.

    The name of an ONNX folder may need the build tools, which are then installed.
    """
    settings = shipped_demo.settled(settings)
    if settings.model_path is None or settings.model_id is not None:
        return settings
    with _errors():
        try:
            found = policy.models(settings)
        except MissingPackage:
            if container.tritonserver() is not None:  # no package of NVIDIA's is replaced
                raise
            on_demand.ensure(on_demand.build_tools(), str(settings.model_path), settings, say)
            found = policy.models(settings)
    (name,) = found.models
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


def check_secrets(settings: Settings) -> None:
    """Raises LaunchError if a secret that models.yaml names is not set."""
    if policy.has_models(settings):
        try:
            policy.secrets(models(settings).models, environment())
        except ModelsFileError as error:
            raise LaunchError(str(error)) from None


def check_remote(settings: Settings) -> None:
    """
    Raises:
        LaunchError: TRITON_URL is wrong, or a setting has no effect on a Triton of others.
    """
    ports.check_source(settings.triton_source)
    if settings.triton_url is not None and settings.default_max_tokens is not None:
        raise LaunchError(
            "DEFAULT_MAX_TOKENS has no effect here, because `build` writes it into the tokenizer: "
            "set it where the models of that Triton are built"
        )


def check_listening(settings: Settings, sock: socket.socket) -> None:
    """
    Raises:
        LaunchError: strangers could call without a key, or the files for TLS cannot be used.
    """
    address = sock.getsockname()[0]
    if not settings.is_authenticated and settings.auth != "off" and not _is_loopback(address):
        raise LaunchError(
            f"HOST={settings.host}: without keys the proxy serves this machine only. Set API_KEY, "
            "or another source of keys (docs/access.md), or AUTH=off to let everybody in who "
            "reaches it"
        )
    tls.configured(settings)


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


def prepared(settings: Settings, say: Callable[[str], None]) -> tuple[Settings, ModelsFile]:
    """Checks the machine and builds stale models. Returns settings with the build's folder."""
    from proxy.operate import building  # absent from the proxy's own image
    from proxy.operate.doctor import machine
    from proxy.operate.triton_server import own_artifacts

    machine.require(*machine.runtime(), *machine.triton_ports(settings))
    found = models(settings)
    if not found.built:
        raise LaunchError(
            f"{settings.models_file}: every model has runtime: remote, so a tritonserver here "
            "would have none. Run `triton-openai proxy`"
        )
    settings = own_artifacts.settled(settings, found, say)
    machine.require(*machine.room(settings))
    if container.tritonserver() is None:
        on_demand.ensure(on_demand.GUIDES, "an answer that follows a schema", settings, say)
    building.build(settings, found, (), say)
    return settings, found


def example(served: ModelsFile) -> str:
    """The model in the printed curl command."""
    return "demo" if "demo" in served.models else next(iter(served.models))
