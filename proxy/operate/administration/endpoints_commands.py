"""`triton-openai endpoints …`"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.operate.administration.remote_options import AsJson, CaFile, KeyFile, Url

if TYPE_CHECKING:
    from proxy.operate.administration.remote import Remote

app = typer.Typer(help="Endpoints of a running proxy's pools: Triton servers.")
Address = Annotated[str, typer.Argument(help="host:port, as `endpoints list` shows it.")]
ENDPOINTS = "/admin/v1/endpoints"
EVERY_S = 0.5


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
    from proxy.operate.administration.remote import remote

    _show(remote(url, key_file, ca_file).call("GET", ENDPOINTS), as_json)


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
    from proxy.operate.administration.remote import remote
    from proxy.processes.errors import LaunchError

    if timeout_s is not None and not wait:
        raise LaunchError("--timeout-s needs --wait: without it the command does not wait")
    proxy = remote(url, key_file, ca_file)
    answer = proxy.call("POST", f"{ENDPOINTS}/drain", {"address": address})
    if wait:
        _wait_until_drained(proxy, address, timeout_s)
        answer = proxy.call("GET", ENDPOINTS)
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
    from proxy.operate.administration.remote import remote

    body = {"address": address}
    proxy = remote(url, key_file, ca_file)
    _show(proxy.call("POST", f"{ENDPOINTS}/undrain", body), as_json)


def _wait_until_drained(proxy: Remote, address: str, timeout_s: float | None) -> None:
    """Returns when the endpoint has no stream of this proxy, or is in no pool any more.

    Raises:
        LaunchError: its streams run for longer than timeout_s.
    """
    from proxy.processes.errors import LaunchError

    began, shown = time.monotonic(), -1
    while True:
        listed = proxy.call("GET", ENDPOINTS)["data"]
        mine = [each for each in listed if each["address"] == address]
        streams = sum(each["streams"] for each in mine)
        if streams != shown:
            typer.echo(f"waiting for {address}: {streams} streams", err=True)
            shown = streams
        if all(each["state"] == "drained" for each in mine):
            return
        if timeout_s is not None and time.monotonic() - began >= timeout_s:
            raise LaunchError(
                f"{address} still has {streams} streams after {timeout_s:g} s. It gets no new ones "
                "and stays drained: wait again with the same command"
            )
        time.sleep(EVERY_S)


def _show(answer: Any, as_json: bool) -> None:
    from proxy.operate.administration import pool_tables, remote_options

    remote_options.show(answer, pool_tables.show_endpoints, as_json=as_json)
