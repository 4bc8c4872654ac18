"""Runs a build for a command: maps its errors to LaunchError, kills its children on a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from build_engines.models_file import ModelsFile
from build_engines.package_index import PackageIndex
from proxy.operate.packages import on_demand
from proxy.operate.triton_server import container
from proxy.processes.errors import LaunchError, ModelLoadingFailed
from proxy.processes.signals import children_die_on_signals
from proxy.settings import Settings

Say = Callable[[str], None]


def build(settings: Settings, models: ModelsFile, only: Sequence[str], say: Say) -> None:
    """Installs the build tools where a model needs them, and builds what is stale.

    Raises:
        ModelLoadingFailed: a model cannot be built.
        LaunchError: a name is unknown, or the tools cannot be installed.
    """
    from build_engines.build import build_all, needing_tools

    with _errors():
        needing = needing_tools(models, settings.artifacts_dir, only=only)
    if needing and container.tritonserver() is None:  # its packages are NVIDIA's: none is replaced
        needed_by = f"the build of {', '.join(needing)}"
        on_demand.ensure(on_demand.GUIDES, needed_by, settings, say)
        on_demand.ensure(on_demand.build_tools(), needed_by, settings, say)
    with _errors(), children_die_on_signals():
        index = PackageIndex(
            may_install=settings.install_packages != "never", torch_index=settings.torch_index_url
        )
        build_all(models, settings.artifacts_dir, only=only, say=say, index=index)


def show(
    settings: Settings, models: ModelsFile, only: Sequence[str], tensorrt_llm: str | None, say: Say
) -> None:
    """Prints what `build` would do, with this version of TensorRT-LLM. Raises like `build`."""
    from build_engines.build import show_all
    from build_engines.gpu import toolkit

    with _errors():
        planned = None if tensorrt_llm is None else toolkit.planned_for(tensorrt_llm)
        show_all(models, settings.artifacts_dir, only=only, say=say, tensorrt_llm=planned)


@contextmanager
def _errors() -> Iterator[None]:
    from build_engines.errors import BuildError, UnservableFolder

    try:
        yield
    except UnservableFolder as error:
        raise ModelLoadingFailed(error.folder, error.reason) from None
    except BuildError as error:
        raise LaunchError(f"build: {error}") from None
