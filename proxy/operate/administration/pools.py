"""`triton-openai endpoints`, `deployments`, `queue` and `models load`: the pools of a proxy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
import typer

from proxy.domain.errors import LaunchError, counted
from proxy.operate.administration.answers import show_table
from proxy.operate.administration.remote import AdminClient, calls_proxy, segment

endpoints = typer.Typer(help="Endpoints of a running proxy's pools: Triton servers.")
deployments = typer.Typer(help="Weights of models' deployments in a running proxy.")
models = typer.Typer()

ENDPOINTS, DEPLOYMENTS = "/admin/v1/endpoints", "/admin/v1/deployments"
EVERY_S = 0.5
LOADING_TIMEOUT_S = 3600.0  # engines of many gigabytes
STYLES = {"ready": "green", "draining": "yellow", "drained": "yellow"}
Body = Mapping[str, Any]

Address = Annotated[str, typer.Argument(help="host:port, as `endpoints list` shows it.")]
PublicName = Annotated[str, typer.Argument(help="The model's public name.")]
TritonName = Annotated[str, typer.Argument(help="Triton's name of the model.")]
Pools = Annotated[
    list[str] | None,
    typer.Option("--pool", help="Only this pool; may be repeated. Default: all."),
]


def _show_endpoints(answer: Body) -> None:
    rows = []
    for each in answer["data"]:
        load, state = each["load"], [(each["state"], STYLES.get(each["state"], "red"))]
        if each["ejected_for_s"]:
            state.append((f" for {each['ejected_for_s']:.0f} s", ""))
        if each["reason"] is not None:
            state.append((f": {each['reason']}", ""))
        counts = ("-" if load[name] is None else str(load[name]) for name in ("waiting", "running"))
        rows.append(
            (
                each["pool"],
                each["address"],
                state,
                each["streams"],
                each["outstanding_tokens"],
                "/".join((*counts, _share(load["kv_in_use"]))),
                ", ".join(each["models"]) or "-",
            )
        )
    load_heading = "waiting/running/KV"
    show_table(("pool", "address", "state", "streams", "tokens", load_heading, "models"), rows)
    for address in answer["drained_and_gone"]:
        typer.echo(f"drained, but in no pool at present: {address}")


def _show_deployments(answer: Body) -> None:
    show_table(
        ("model", "deployment", "share", "weight", "models.yaml", "pool", "Triton model"),
        [
            (
                each["model"],
                each["name"],
                _share(each["share"]),
                f"{each['weight']:g}",
                f"{each['configured_weight']:g}",
                each["pool"],
                each["triton_model"]
                + ("" if each["version"] is None else f" (version {each['version']})"),
            )
            for each in answer["data"]
        ],
    )


def _show_queues(answer: Body) -> None:
    """A line for each queue, and one for each of its tenants."""
    rows: list[Sequence[object]] = []
    for each in answer["data"]:
        bound = "" if each["capacity"] is None else f" of {each['capacity']}"
        rows.append((each["queue"], "", "", f"{each['running']}{bound}", each["waiting"], ""))
        for one in each["tenants"]:
            share, weight = _share(one["share"]), f"{one['weight']:g}"
            rows.append(("", one["tenant"], weight, one["running"], one["waiting"], share))
        if (others := each["tenants_in_all"] - len(each["tenants"])) > 0:
            rows.append(("", f"and {others} more", "", "", "", ""))
    show_table(("queue", "tenant", "weight", "running", "waiting", "share"), rows)


def _show_results(answer: Body) -> None:
    show_table(
        ("pool", "address", "result"),
        [
            (
                each["pool"],
                each["address"],
                [("ok", "green") if each["error"] is None else (each["error"], "red")],
            )
            for each in answer["data"]
        ],
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}" if value in (0, 1) else f"{value:.1%}"


@endpoints.callback(invoke_without_command=True)
def _endpoints(context: typer.Context) -> None:
    """Endpoints of a running proxy's pools. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_endpoints()


@endpoints.command("list")
@calls_proxy(_show_endpoints)
def list_endpoints(proxy: AdminClient) -> Any:
    """List endpoints with their state and load."""
    return proxy.call("GET", ENDPOINTS)


@endpoints.command()
@calls_proxy(_show_endpoints)
def drain(
    proxy: AdminClient,
    address: Address,
    wait: Annotated[bool, typer.Option("--wait", help="Until its streams have ended.")] = False,
    timeout_s: Annotated[
        float | None, typer.Option(min=0, help="With --wait: seconds at most. Default: no limit.")
    ] = None,
) -> Any:
    """Give an endpoint no new streams, until it is undrained."""
    if timeout_s is not None and not wait:
        raise LaunchError("--timeout-s needs --wait: without it the command does not wait")
    answer = proxy.call("POST", f"{ENDPOINTS}/drain", {"address": address})
    if wait:
        _wait_until_drained(proxy, address, timeout_s)
        answer = proxy.call("GET", ENDPOINTS)
        answer["data"] = [each for each in answer["data"] if each["address"] == address]
    return answer


def _wait_until_drained(proxy: AdminClient, address: str, timeout_s: float | None) -> None:
    """Returns when the endpoint has no stream of this proxy, or is in no pool any more.

    Raises:
        LaunchError: its streams run for longer than timeout_s.
    """
    began, shown = time.monotonic(), -1
    while True:
        listed = proxy.call("GET", ENDPOINTS)["data"]
        mine = [each for each in listed if each["address"] == address]
        streams = sum(each["streams"] for each in mine)
        if streams != shown:
            typer.echo(f"waiting for {address}: {counted(streams, 'stream')}", err=True)
            shown = streams
        if all(each["state"] == "drained" for each in mine):
            return
        if timeout_s is not None and time.monotonic() - began >= timeout_s:
            raise LaunchError(
                f"{address} still has {counted(streams, 'stream')} after {timeout_s:g} s. It gets "
                "no new ones and stays drained: wait again with the same command"
            )
        time.sleep(EVERY_S)


@endpoints.command()
@calls_proxy(_show_endpoints)
def undrain(proxy: AdminClient, address: Address) -> Any:
    """Give an endpoint new streams again, if it is healthy."""
    return proxy.call("POST", f"{ENDPOINTS}/undrain", {"address": address})


@deployments.callback(invoke_without_command=True)
def _deployments(context: typer.Context) -> None:
    """Weights of models' deployments in a running proxy. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_deployments()


@deployments.command("list")
@calls_proxy(_show_deployments)
def list_deployments(proxy: AdminClient) -> Any:
    """List deployments with their shares of the requests."""
    return proxy.call("GET", DEPLOYMENTS)


@deployments.command()
@calls_proxy(_show_deployments)
def switch(
    proxy: AdminClient,
    model: PublicName,
    deployment: Annotated[str, typer.Argument(help="The deployment that gets all requests.")],
) -> Any:
    """Give one deployment all requests (blue/green). `rollback` takes it back."""
    body = {"deployment": deployment}
    return proxy.call("POST", f"{DEPLOYMENTS}/{segment(model)}/switch", body)


@deployments.command()
@calls_proxy(_show_deployments)
def weights(
    proxy: AdminClient,
    model: PublicName,
    weight: Annotated[
        list[str],
        typer.Argument(metavar="NAME=WEIGHT…", help="One that is not named gets no requests."),
    ],
) -> Any:
    """Set the weights of a model's deployments, in place of those of models.yaml."""
    body = {"weights": dict(map(_weight, weight))}
    return proxy.call("PUT", f"{DEPLOYMENTS}/{segment(model)}/weights", body)


def _weight(argument: str) -> tuple[str, float]:
    """Raises LaunchError. The proxy checks the range."""
    name, has_value, value = argument.rpartition("=")
    try:
        if not has_value or isinstance(found := orjson.loads(value), bool):
            raise ValueError
        return name, float(found)
    except (ValueError, TypeError):
        raise LaunchError(f"{argument}: write NAME=WEIGHT, such as green=0.05") from None


@deployments.command()
@calls_proxy(_show_deployments)
def rollback(proxy: AdminClient, model: PublicName) -> Any:
    """Take the last change of a model's weights back; again and again, up to 20 changes."""
    return proxy.call("POST", f"{DEPLOYMENTS}/{segment(model)}/rollback", {})


@calls_proxy(_show_queues)
def queue(proxy: AdminClient) -> Any:
    """Show the tenants whose requests run or wait in each model's queue."""
    return proxy.call("GET", "/admin/v1/queues")


@models.command()
@calls_proxy(_show_results)
def load(proxy: AdminClient, model: TritonName, pool: Pools = None) -> Any:
    """Have every endpoint of a running proxy load a model of its repository, or load it again."""
    return _tell_pools(proxy, model, "load", pool)


@models.command()
@calls_proxy(_show_results)
def unload(proxy: AdminClient, model: TritonName, pool: Pools = None) -> Any:
    """Have every endpoint of a running proxy unload a model."""
    return _tell_pools(proxy, model, "unload", pool)


def _tell_pools(proxy: AdminClient, model: str, what: str, pool: list[str] | None) -> Any:
    path = f"/admin/v1/models/{segment(model)}/{what}"
    return proxy.call("POST", path, {"pools": pool or []}, timeout_s=LOADING_TIMEOUT_S)
