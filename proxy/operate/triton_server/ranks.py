"""The processes of one Triton with models over several GPUs, and the command that starts them.

NVIDIA's C++ backend runs one tritonserver per GPU, under mpirun: rank 0 serves, the others only
load the engines. The LLM API spawns its own processes inside one node, by MPI, in a job of their
own also under `mpirun -n 1`, with which upstream starts even one tritonserver. Over several nodes,
upstream's launcher precedes each rank's command: on rank 0
it connects the `LLM` in tritonserver to the other ranks, which are processes of its own and ignore
their command. All commands are as upstream's launch_triton_server.py writes them, except UNBOUND.
Called by `command`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from build_engines.models_file import GpuEntry, ModelsFile
from proxy.domain.errors import LaunchError

LLM_API_LAUNCHER = "trtllm-llmapi-launch"
MPIRUN = (None, "mpirun")  # the values of gpu.mpi for a single model
# Open MPI binds each of two ranks to one core, but rank 0 is a server with its Python models.
UNBOUND = ("--bind-to", "none")
SECRET_VARIABLE = "TRITON_SECRET"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """engines: the Triton models that every rank loads. launcher: precedes tritonserver.

    is_under_mpirun: mpirun also starts a single rank. devices: the GPUs that the processes see, by
    index or UUID; empty for all.
    """

    size: int = 1
    engines: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    is_under_mpirun: bool = False
    devices: tuple[str, ...] = ()

    @classmethod
    def of(cls, models: ModelsFile) -> World:
        """
        Raises:
            LaunchError: the models cannot share a server.
        """
        from build_engines.triton_models import role_name  # imports grpc

        entries = {n: e for n, e in models.models.items() if isinstance(e, GpuEntry)}
        spread = {name: entry for name, entry in entries.items() if _is_spread(entry)}
        if not spread:
            return cls._one_rank(entries)
        if others := [name for name in entries if name not in spread]:
            raise LaunchError(_conflict(next(iter(spread)), others[0], "runs in one"))
        sizes = {entry.gpu.world_size for entry in spread.values()}
        runtimes = {entry.runtime for entry in spread.values()}
        if len(sizes) > 1 or len(runtimes) > 1 or (len(spread) > 1 and _is_llm_api(spread)):
            first, second, *_ = spread
            raise LaunchError(_conflict(first, second, "is distributed differently"))
        launcher = (LLM_API_LAUNCHER,) if _is_llm_api(spread) else ()
        engines = tuple(role_name(name, "engine") for name in spread)
        devices = _devices(spread) if launcher else ()
        return cls(size=sizes.pop(), engines=engines, launcher=launcher, devices=devices)

    @classmethod
    def _one_rank(cls, entries: Mapping[str, GpuEntry]) -> World:
        under = MPIRUN if len(entries) == 1 else ("mpirun",)
        llm_api = [entry for entry in entries.values() if entry.runtime == "tensorrt_llm"]
        return cls(is_under_mpirun=any(entry.gpu.mpi in under for entry in llm_api))

    @property
    def environment(self) -> dict[str, str]:
        """For ranks on other nodes."""
        if not self.devices:
            return {}
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(self.devices)}
        return {**devices, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # nvidia-smi's order


def _devices(entries: Mapping[str, GpuEntry]) -> tuple[str, ...]:
    """The named GPUs of the only model."""
    return tuple(str(one) for entry in entries.values() for one in entry.gpu.devices or ())


def _is_spread(entry: GpuEntry) -> bool:
    """Whether it needs processes that mpirun must start."""
    if entry.runtime == "tensorrtllm":
        return entry.gpu.world_size > 1
    return entry.gpu.world_size > entry.gpu.gpus_per_node


def _is_llm_api(spread: Mapping[str, GpuEntry]) -> bool:
    return any(entry.runtime == "tensorrt_llm" for entry in spread.values())


def _conflict(first: str, second: str, how: str) -> str:
    return (
        f"{first} is distributed over processes by mpirun and {second} {how}: one tritonserver "
        "cannot serve both, give each a models file of its own"
    )


def command(
    tritonserver: Sequence[str], world: World, *, shm_prefix: str, secret: str
) -> list[str]:
    """
    Args:
        tritonserver: its path and options, without the Python backend's.
        secret: what no launcher may print; it is in SECRET_VARIABLE, too.

    Raises:
        LaunchError: mpirun or upstream's launcher is not on PATH.
    """
    if world.size == 1 and not world.is_under_mpirun:
        return [*tritonserver, _python_backend(shm_prefix)]
    found = [_on_path("mpirun"), "--allow-run-as-root", *UNBOUND]
    found += [part for variable in world.environment for part in ("-x", variable)]
    for rank in range(world.size):
        start = [":"] if rank else []
        options = list(_only(world.engines)) if rank else []
        backend = _python_backend(f"{shm_prefix}{rank}-")
        program = _without_secret(tritonserver, secret) if world.launcher else tritonserver
        found += [*start, "-n", "1", *map(_on_path, world.launcher), *program]
        found += [*options, backend]
    return found


def _without_secret(tritonserver: Sequence[str], secret: str) -> list[str]:
    """The command behind upstream's launcher, which prints it, and splits it at every space.

    A shell adds the options that hold the secret.
    """
    hidden = [option for option in tritonserver if secret and secret in option]
    given = " ".join(f'"{option}"' for option in hidden).replace(secret, "$S")
    script = f'S=${SECRET_VARIABLE};unset {SECRET_VARIABLE};exec "$@" {given}'
    shown = [option for option in tritonserver if option not in hidden]
    return ["/bin/sh", "-c", script.replace(" ", "${IFS}"), "sh", *shown]


def _only(engines: Sequence[str]) -> Iterator[str]:
    """Options of the ranks that do not serve: they load the engines only."""
    yield "--model-control-mode=explicit"
    yield from (f"--load-model={engine}" for engine in engines)


def _python_backend(shm_prefix: str) -> str:
    return f"--backend-config=python,shm-region-prefix-name={shm_prefix}"


def _on_path(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise LaunchError(
            f"{program} is not on PATH: serve models on GPUs in NVIDIA's container, which has it. "
            "A single model on one node does not need it with gpu.mpi: spawn"
        )
    return path
