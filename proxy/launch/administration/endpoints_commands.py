"""`triton-openai endpoints …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from triton_openai.proxy.launch.administration.remote_options import AsJson, CaFile, KeyFile, Url

if TYPE_CHECKING:
    from triton_openai.proxy.launch.administration.drain_wait import Progress
    from triton_openai.proxy.launch.administration.remote import Remote

app = typer.Typer(help="Endpoints of a running proxy's pools: Triton servers.")
Address = Annotated[str, typer.Argument(help="host:port, as `endpoints list` shows it.")]


@app.callback(invoke_without_command=True)
def endpoints(context: typer.Context) -> None:
    """Endpoints of a running proxy's pools. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_()


@app.command("list")
def list_(
    url: Url = None, key_file: KeyFile = None, ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """List endpoints with their state and load."""
    from triton_openai.proxy.launch.administration.remote import remote

    _show(remote(url, key_file, ca_file).call("GET", "/admin/v1/endpoints"), as_json)


@app.command()
def drain(
    address: Address,
    wait: Annotated[bool, typer.Option("--wait", help="Until its streams have ended.")] = False,
    timeout_s: Annotated[
        float | None, typer.Option(min=0, help="With --wait: seconds at most. Default: no limit.")
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Give an endpoint no new streams, until it is undrained."""
    from triton_openai.proxy.launch.administration.remote import remote
    from triton_openai.proxy.processes.errors import LaunchError

    if timeout_s is not None and not wait:
        raise LaunchError("--timeout-s needs --wait: without it the command does not wait")
    proxy = remote(url, key_file, ca_file)
    answer = proxy.call("POST", "/admin/v1/endpoints/drain", {"address": address})
    if wait:
        _wait(proxy, address, timeout_s)
        answer = proxy.call("GET", "/admin/v1/endpoints")
        answer["data"] = [each for each in answer["data"] if each["address"] == address]
    _show(answer, as_json)


@app.command()
def undrain(
    address: Address,
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Give an endpoint new streams again, if it is healthy."""
    from triton_openai.proxy.launch.administration.remote import remote

    body = {"address": address}
    proxy = remote(url, key_file, ca_file)
    _show(proxy.call("POST", "/admin/v1/endpoints/undrain", body), as_json)


def _wait(proxy: Remote, address: str, timeout_s: float | None) -> None:
    from triton_openai.proxy.launch.administration import drain_wait
    from triton_openai.proxy.launch.administration.process_connections import ProcessConnections

    last: list[str] = []

    def show(progress: Progress) -> None:
        if [progress.line] != last:
            typer.echo(f"waiting for {address}: {progress.line}", err=True)
            last[:] = [progress.line]

    with ProcessConnections(proxy.client) as connections:
        drain_wait.wait(connections, address, at_most_s=timeout_s, show=show)


def _show(answer: Any, as_json: bool) -> None:
    from triton_openai.proxy.launch.administration import pool_tables, remote_options

    remote_options.show(answer, pool_tables.show_endpoints, as_json=as_json)
