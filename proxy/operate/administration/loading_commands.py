"""`triton-openai models load|unload`. The command `models` itself is in `cli`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from proxy.operate.administration.remote_options import AsJson, CaFile, KeyFile, Url

if TYPE_CHECKING:
    from proxy.operate.administration.remote import Remote

app = typer.Typer()
LOADING_TIMEOUT_S = 3600.0  # engines of many gigabytes
Model = Annotated[str, typer.Argument(help="Triton's name of the model.")]
Pool = Annotated[
    list[str] | None, typer.Option("--pool", help="Only this pool; may be repeated. Default: all.")
]


@app.command()
def load(
    model: Model,
    pool: Pool = None,
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Have every endpoint of a running proxy load a model of its repository, or load it again."""
    from proxy.operate.administration.remote import remote

    _change(remote(url, key_file, ca_file), model, "load", pool or [], as_json)


@app.command()
def unload(
    model: Model,
    pool: Pool = None,
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Have every endpoint of a running proxy unload a model."""
    from proxy.operate.administration.remote import remote

    _change(remote(url, key_file, ca_file), model, "unload", pool or [], as_json)


def _change(proxy: Remote, model: str, verb: str, pools: list[str], as_json: bool) -> None:
    """Exits with 1 where an endpoint did not do it."""
    from proxy.operate.administration import pool_tables, remote_options
    from proxy.operate.administration.remote import segment

    path = f"/admin/v1/models/{segment(model)}/{verb}"
    answer = proxy.call("POST", path, {"pools": pools}, timeout_s=LOADING_TIMEOUT_S)
    remote_options.show(answer, pool_tables.show_results, as_json=as_json)
    if not answer["ok"]:
        raise typer.Exit(1)
