"""`triton-openai deployments …`"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer

from proxy.operate.administration.remote_options import AsJson, CaFile, KeyFile, Url
from proxy.processes.errors import LaunchError

app = typer.Typer(help="Weights of models' deployments in a running proxy.")
PATH = "/admin/v1/deployments"
Model = Annotated[str, typer.Argument(help="The model's public name.")]


@app.callback(invoke_without_command=True)
def deployments(context: typer.Context) -> None:
    """Weights of models' deployments in a running proxy. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_()


@app.command("list")
def list_(
    url: Url = None, key_file: KeyFile = None, ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """List deployments with their shares of the requests."""
    from proxy.operate.administration.remote import remote

    _show(remote(url, key_file, ca_file).call("GET", PATH), as_json)


@app.command()
def switch(
    model: Model,
    deployment: Annotated[str, typer.Argument(help="The deployment that gets all requests.")],
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Give one deployment all requests (blue/green). `rollback` takes it back."""
    from proxy.operate.administration.remote import remote, segment

    path = f"{PATH}/{segment(model)}/switch"
    body = {"deployment": deployment}
    _show(remote(url, key_file, ca_file).call("POST", path, body), as_json)


@app.command()
def weights(
    model: Model,
    weight: Annotated[
        list[str],
        typer.Argument(metavar="NAME=WEIGHT…", help="One that is not named gets no requests."),
    ],
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Set the weights of a model's deployments, in place of those of models.yaml."""
    from proxy.operate.administration.remote import remote, segment

    body = {"weights": dict(map(_weight, weight))}
    path = f"{PATH}/{segment(model)}/weights"
    _show(remote(url, key_file, ca_file).call("PUT", path, body), as_json)


@app.command()
def rollback(
    model: Model,
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Take the last change of a model's weights back; again and again, up to 20 changes."""
    from proxy.operate.administration.remote import remote, segment

    path = f"{PATH}/{segment(model)}/rollback"
    _show(remote(url, key_file, ca_file).call("POST", path, {}), as_json)


def _weight(argument: str) -> tuple[str, float]:
    """Raises LaunchError. The proxy checks the range."""
    name, has_value, value = argument.rpartition("=")
    try:
        if not has_value or isinstance(found := orjson.loads(value), bool):
            raise ValueError
        return name, float(found)
    except (ValueError, TypeError):
        raise LaunchError(f"{argument}: write NAME=WEIGHT, such as green=0.05") from None


def _show(answer: Any, as_json: bool) -> None:
    from proxy.operate.administration import pool_tables, remote_options

    remote_options.show(answer, pool_tables.show_deployments, as_json=as_json)
