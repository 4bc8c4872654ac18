"""The command line `triton-openai`: each command parses settings and calls `proxy/operate/`.

An expected failure prints one line to stderr and exits with a non-zero status; anything else is our
bug and shows its traceback. Lines of servers that no terminal reads are JSON, unless LOG_FORMAT is
text. Heavy imports are inside the commands, so that `--help` is fast.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import sys
import textwrap
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from pydantic import ValidationError

from proxy.domain.errors import LaunchError, ModelLoadingFailed
from proxy.operate.administration import accounts, batches, observation, pools
from proxy.operate.replay import replay_command

if TYPE_CHECKING:
    from proxy.settings import Settings

Say = Callable[[str], None]
# How alike a variable's name and a setting's are where it is probably misspelt.
ALIKE = 0.88  # MAX_CHOICE and MAX_CHOICES, TRITON_GPRC_PORT and TRITON_GRPC_PORT
LEAST_LETTERS = 6  # many short variables resemble HOST or PORT
# Kubernetes sets variables for each service, such as TRITON_PORT=tcp://10.0.0.1:8001
_LINK_VALUES = ("tcp://", "udp://", "sctp://")
_LINK_ENDS = ("_SERVICE_HOST", "_SERVICE_PORT", "_ADDR", "_PROTO")
FOREIGN = frozenset({"LOGLEVEL"})  # of torch.distributed
SERVERS = ("serve", "triton", "proxy")  # commands
# Between two garbage collections: imports only make objects that stay.
IMPORTED_OBJECTS = 50_000

app = typer.Typer(
    name="triton-openai",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# The headings of --help, in the order of their first commands below.
START, RUNNING, ACCOUNTS = "Start", "Look at a running proxy, and operate it", "Tenants and keys"


def _option(text: str, variable: str, default: str) -> Any:
    """An option whose help names its environment variable; `settings` alone reads the variable."""
    return typer.Option(help=f"{text} Variable: {variable}.", show_default=default)


Host = Annotated[str | None, _option("Address the proxy listens on.", "HOST", "127.0.0.1")]
Port = Annotated[int | None, _option("Port the proxy listens on.", "PORT", "9000")]
GrpcPort = Annotated[
    int | None, _option("gRPC port of the tritonserver.", "TRITON_GRPC_PORT", "8001")
]
HttpPort = Annotated[
    int | None, _option("HTTP port of the tritonserver.", "TRITON_HTTP_PORT", "off")
]
MetricsPort = Annotated[
    int | None, _option("Metrics port of the tritonserver.", "TRITON_METRICS_PORT", "8002")
]
Models = Annotated[Path | None, _option("Models file.", "MODELS_FILE", "models.yaml")]
Prepared = Annotated[
    str | None,
    typer.Option(help="A small real model that a Python package carries: smollm2."),
]
Artifacts = Annotated[Path | None, _option("Build folder.", "ARTIFACTS_DIR", "artifacts")]


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from proxy import __version__

        typer.echo(f"triton-openai {__version__}")
        raise typer.Exit


@app.callback(epilog="Every other setting is a variable: README names the page with all of them.")
def _every_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """An OpenAI-compatible front for Triton, and the model repository behind it."""


@app.command(rich_help_panel=START)
def serve(
    host: Host = None,
    port: Port = None,
    triton_grpc_port: GrpcPort = None,
    triton_http_port: HttpPort = None,
    triton_metrics_port: MetricsPort = None,
    models_file: Models = None,
    model: Prepared = None,
    artifacts_dir: Artifacts = None,
) -> None:
    """Build models that are missing, then start tritonserver and the proxy.

    In a folder without models.yaml, it serves the shipped demo from your own data folder.
    """
    from proxy.operate import run, start
    from proxy.operate.doctor import machine
    from proxy.operate.triton_server import folders, launch

    say = _log("serve")
    if model is not None:
        models_file = folders.models_file_of(model)
    settings = _settings(
        say,
        host=host,
        port=port,
        triton_grpc_port=triton_grpc_port,
        triton_http_port=triton_http_port,
        triton_metrics_port=triton_metrics_port,
        models_file=models_file,
        artifacts_dir=artifacts_dir,
    ).model_copy(update={"triton_url": None})
    settings = launch.with_secret(start.settled(settings))
    machine.require(machine.proxy_port(settings))
    sock = start.bound(settings)
    settings, models = start.prepared(settings, say)
    prepared = launch.prepared(settings, models)
    _loop(run.together(settings, prepared, sock, model=start.example(models), say=say))


@app.command(rich_help_panel=START)
def triton(
    triton_grpc_port: GrpcPort = None,
    triton_http_port: HttpPort = None,
    triton_metrics_port: MetricsPort = None,
    models_file: Models = None,
    artifacts_dir: Artifacts = None,
) -> None:
    """Build models that are missing, then run only tritonserver: a container's own, or ours."""
    from proxy.operate import run, start
    from proxy.operate.triton_server import launch

    say = _log("triton")
    settings = _settings(
        say,
        triton_grpc_port=triton_grpc_port,
        triton_http_port=triton_http_port,
        triton_metrics_port=triton_metrics_port,
        models_file=models_file,
        artifacts_dir=artifacts_dir,
    )
    settings, models = start.prepared(start.settled(settings), say)
    if settings.triton_secret is None:
        say(
            "TRITON_SECRET is not set, so a proxy in another process cannot list this Triton's "
            "models: set it to the same value for both"
        )
    settings = launch.with_secret(settings)
    _loop(run.triton(settings, launch.prepared(settings, models), say))


@app.command(rich_help_panel=START)
def proxy(
    triton: Annotated[
        str | None,
        _option(
            "grpc://host:port of any Triton; grpcs:// for TLS.",
            "TRITON_URL",
            "grpc://127.0.0.1:8001",
        ),
    ] = None,
    host: Host = None,
    port: Port = None,
    models_file: Models = None,
) -> None:
    """Run only the proxy, against any Triton that serves our ensemble."""
    from proxy.models import policy
    from proxy.operate import run, start

    say = _log("proxy")
    settings = _settings(say, triton_url=triton, host=host, port=port, models_file=models_file)
    start.check_remote(settings)
    sock = start.bound(settings)
    model = start.example(start.models(settings)) if policy.has_models(settings) else None
    _loop(run.proxy(settings, sock, model=model, say=say))


@app.command(rich_help_panel=START)
def adopt(
    triton: Annotated[str, typer.Argument(help="grpc://host:port of a Triton; grpcs:// for TLS.")],
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face folder with the model's tokenizer.json and config.json."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Name of the Triton model; default: all.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Add the entries to the models file.")
    ] = False,
    models_file: Models = None,
) -> None:
    """Write entries of models.yaml for the models of others that a Triton has."""
    from proxy.operate import adopt as adoption

    settings = _settings(triton_url=triton, models_file=models_file)
    folder = None if tokenizer is None else tokenizer.absolute()
    found = adoption.entries(settings, folder, model)
    if not write:
        typer.echo(f"models:\n{textwrap.indent(found, '  ')}", nl=False)
        return
    adoption.written(found, settings.models_file)
    _say("adopt")(f"added to {settings.models_file}")


@app.command(rich_help_panel=START)
def build(
    model: Annotated[
        list[str] | None, typer.Argument(help="Names of models; default: all.")
    ] = None,
    models_file: Models = None,
    artifacts_dir: Artifacts = None,
    dry_run: Annotated[
        bool, typer.Option(help="Only print the commands and files; run and write nothing.")
    ] = False,
    tensorrt_llm: Annotated[
        str | None,
        typer.Option(help="With --dry-run: the TensorRT-LLM version to assume, if not installed."),
    ] = None,
) -> None:
    """Build the models of models.yaml: weights -> Triton models under artifacts/."""
    from proxy.operate import start
    from proxy.operate.doctor import machine
    from proxy.operate.triton_server import folders

    settings = _settings(models_file=models_file, artifacts_dir=artifacts_dir)
    if tensorrt_llm is not None and not dry_run:
        raise LaunchError("--tensorrt-llm needs --dry-run: a build uses the installed version")
    if dry_run:
        settings = folders.with_shipped_demo(settings)
        start.show_build(settings, start.models(settings), model or (), tensorrt_llm, typer.echo)
        return
    say = _say("build")
    settings = start.settled(settings)
    found = start.models(settings)
    settings = folders.with_own_artifacts(settings, found, say)
    machine.require(*machine.room(settings))
    start.build(settings, found, model or (), say)


@pools.models.callback(invoke_without_command=True)
def models(
    context: typer.Context, models_file: Models = None, artifacts_dir: Artifacts = None
) -> None:
    """Show the models of models.yaml and whether each is built."""
    if context.invoked_subcommand is not None:
        return
    from proxy.operate import start
    from proxy.operate.triton_server import folders

    settings = _settings(models_file=models_file, artifacts_dir=artifacts_dir)
    settings = folders.with_shipped_demo(settings)
    start.show_models(start.models(settings), folders.place(settings))


@app.command(rich_help_panel=START)
def doctor(
    host: Host = None,
    port: Port = None,
    models_file: Models = None,
    artifacts_dir: Artifacts = None,
    only_gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Only check TensorRT-LLM and the GPUs of the models."),
    ] = False,
    triton: Annotated[
        str | None,
        typer.Option(help="Only show the language models of this Triton: grpc://host:port."),
    ] = None,
) -> None:
    """Check this machine; print each problem and how to fix it."""
    from proxy.operate import adopt as adoption
    from proxy.operate.doctor import gpu, machine

    if triton is not None:
        machine.show(adoption.checks(_settings(triton_url=triton)))
        return
    settings = _settings(host=host, port=port, models_file=models_file, artifacts_dir=artifacts_dir)
    checks = gpu.everything(settings) if only_gpu else machine.everything(settings)
    machine.show(checks)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


@app.command(hidden=True)
def health(host: Host = None, port: Port = None) -> None:
    """Exit with 0 if the proxy of this machine and these settings is alive; for containers."""
    from proxy.operate.triton_server import probe

    probe.check_alive(_settings(host=host, port=port))


for _command in (observation.top, observation.trace, observation.log_level, pools.queue):
    app.command(rich_help_panel=RUNNING)(_command)
app.command(rich_help_panel=RUNNING)(replay_command.replay)
app.command(rich_help_panel=ACCOUNTS)(accounts.usage)
app.add_typer(pools.models, name="models", rich_help_panel=START)
app.add_typer(pools.endpoints, name="endpoints", rich_help_panel=RUNNING)
app.add_typer(pools.deployments, name="deployments", rich_help_panel=RUNNING)
app.add_typer(batches.batches, name="batches", rich_help_panel=RUNNING)
app.add_typer(accounts.tenants, name="tenants", rich_help_panel=ACCOUNTS)
app.add_typer(accounts.keys, name="keys", rich_help_panel=ACCOUNTS)
app.add_typer(accounts.audit, name="audit", rich_help_panel=ACCOUNTS)


def main(arguments: list[str] | None = None) -> None:
    """The entry point of the command line and of `python -m`."""
    gc.set_threshold(IMPORTED_OBJECTS)
    # Only tritonserver is ever forked, and it does not use our gRPC. Without this gRPC logs a line
    # for each fork. gRPC reads the variable when it is imported.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    try:
        app(args=arguments, prog_name="triton-openai")
    except (LaunchError, OSError, ValidationError) as error:
        if (line := explain(error)) is None:
            raise
        command, *_ = sys.argv[1:] if arguments is None else arguments
        if command in SERVERS and _is_log(sys.stderr):
            code = "model_loading_failed" if type(error) is ModelLoadingFailed else "start_failed"
            body = {"message": line, "type": "server_error", "code": code}
            typer.echo(json.dumps({"error": body}, ensure_ascii=False), err=True)
        else:
            typer.echo(f"error: {line}", err=True)
        raise SystemExit(1) from None


def explain(error: LaunchError | OSError | ValidationError) -> str | None:
    """The line to print; None for an error that an operator cannot fix."""
    match error:
        case LaunchError():
            return " ".join(str(error).split())
        case ValidationError():
            return _wrong_setting(error)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            where = f" at {error.filename}" if error.filename else ""
            return f"the disk is full{where}: free some, or set ARTIFACTS_DIR to another disk"
        case OSError(errno=errno.EACCES | errno.EROFS | errno.EPERM):
            return f"cannot write {error.filename}: {error.strerror}"
    return None


def _wrong_setting(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if not first["loc"]:  # settings that contradict each other: the message names them
        return first["msg"].removeprefix("Value error, ")
    name = "_".join(str(part) for part in first["loc"])
    return f"{name.upper()}={first['input']}: {first['msg']} (a variable, or an option)"


def _settings(warn: Say | None = None, **overrides: Any) -> Settings:
    """Settings in which options override the environment, both names of a variable.

    Warns of variables that no setting has: with `warn`, else on stderr.
    """
    from proxy.settings import OTHER_NAMES, Settings, environment

    for name, meant in misspelt(environment(), [name.upper() for name in Settings.model_fields]):
        # The value is not shown, since it may be a secret.
        text = f"warning: {name} is not a setting and has no effect: did you mean {meant}?"
        typer.echo(text, err=True) if warn is None else warn(text)
    given = {name: value for name, value in overrides.items() if value is not None}
    return Settings(
        **given, **{OTHER_NAMES[one]: given[one] for one in OTHER_NAMES if one in given}
    )


def misspelt(variables: Mapping[str, str], settings: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields each such variable and the setting that it resembles. Ignores case.

    Args:
        settings: their names in upper case.
    """
    known = set(settings)
    for name, value in sorted(variables.items()):
        capitals = name.upper()
        if capitals in known or _is_foreign(capitals, value):
            continue
        if found := get_close_matches(capitals, known, n=1, cutoff=ALIKE):
            yield name, found[0]


def _is_foreign(name: str, value: str) -> bool:
    is_link = value.startswith(_LINK_VALUES) or name.endswith(_LINK_ENDS)
    return len(name) < LEAST_LETTERS or is_link or name in FOREIGN


def _loop(work: Coroutine[Any, Any, None]) -> None:
    import uvloop

    uvloop.run(work)


def _say(area: str) -> Say:
    return lambda line: typer.echo(f"[{area}] {line}")


def _log(command: str) -> Say:
    """What a server says: on stdout, as lines or as records of its log, if anybody reads them."""
    from proxy.telemetry import logs

    write = logs.stdout_writer(command) if _is_log(sys.stdout) else _say(command)

    def say(line: str) -> None:
        with suppress(OSError):
            write(line)

    return say


def _is_log(stream: TextIO) -> bool:
    """Read before the settings, which may be wrong."""
    return not stream.isatty() and os.environ.get("LOG_FORMAT") != "text"


if __name__ == "__main__":
    main()
