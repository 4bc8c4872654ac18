"""What commands do first: read the models file, check the machine, build. Called by `cli`."""

from __future__ import annotations

from collections.abc import Callable

from triton_openai.build_engines.errors import UnservableFolder
from triton_openai.build_engines.models_file import ModelsFile, ModelsFileError
from triton_openai.proxy.models import policy
from triton_openai.proxy.processes.errors import LaunchError, ModelLoadingFailed
from triton_openai.proxy.settings import Settings, environment


def models(settings: Settings) -> ModelsFile:
    """Raises LaunchError."""
    try:
        return policy.models(settings)
    except ModelsFileError as error:
        raise LaunchError(str(error)) from None
    except UnservableFolder as error:
        raise ModelLoadingFailed(error.folder, error.reason) from None


def check_secrets(settings: Settings) -> None:
    """Raises LaunchError if a secret that models.yaml names is not set."""
    if policy.has_models(settings):
        try:
            policy.secrets(models(settings).models, environment())
        except ModelsFileError as error:
            raise LaunchError(str(error)) from None


def prepared(settings: Settings, say: Callable[[str], None]) -> tuple[Settings, ModelsFile]:
    """Checks the machine and builds stale models. Returns settings with the build's folder."""
    from triton_openai.proxy.launch import building  # absent from the proxy's own image
    from triton_openai.proxy.launch.doctor import machine
    from triton_openai.proxy.launch.triton_server import own_artifacts

    machine.require(*machine.runtime(), *machine.triton_ports(settings))
    found = models(settings)
    settings = own_artifacts.settled(settings, found, say)
    machine.require(*machine.room(settings))
    building.build(settings, found, (), say)
    return settings, found


def example(served: ModelsFile) -> str:
    """The model in the printed curl command."""
    return "demo" if "demo" in served.models else next(iter(served.models))
