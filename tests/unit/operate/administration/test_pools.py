"""endpoints, deployments, models load: the commands call a running proxy's /admin/v1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from proxy.domain.errors import LaunchError
from proxy.domain.log_level import LogLevel
from proxy.operate.administration.remote import AdminClient
from tests.doubles.pools import endpoint
from tests.fixtures.operated_pools import ONE, OTHER, TWO, OperatedPools
from tests.fixtures.running_app import RunningApp


class RunningPools(OperatedPools, RunningApp):
    """Over doubles of the pools."""


@pytest.fixture(autouse=True)
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningPools]:
    with capture_logs(), RunningPools() as running:  # the proxy's log is no output of a command
        monkeypatch.setenv("ADMIN_KEY", running.admin)
        monkeypatch.setenv("PORT", running.url.rpartition(":")[2])
        yield running


def test_endpoints_are_a_table_or_json(succeeds):
    for arguments in (("endpoints",), ("endpoints", "list")):
        table = succeeds(*arguments)
        assert "address" in table.splitlines()[0]
        assert all(each in table for each in (ONE, TWO, OTHER, "spare", "25.0%"))
    listed = json.loads(succeeds("endpoints", "list", "--json"))
    assert [each["address"] for each in listed["data"]] == [ONE, TWO, OTHER]


def test_an_endpoint_is_drained_and_undrained(succeeds, proxy):
    table = succeeds("endpoints", "drain", ONE)
    assert "draining" in table
    assert TWO not in table
    table = succeeds("endpoints", "undrain", ONE)
    assert "ready" in table
    assert proxy.decisions.calls == [("drain", ONE, "admin"), ("undrain", ONE, "admin")]


def test_drain_waits_until_the_streams_have_ended_and_shows_its_progress(run, proxy):
    def end_one(status: Any) -> Any:
        """Ends a stream each time that the endpoints are listed after the drain."""
        if status.address == ONE and ONE in proxy.decisions.drained:
            proxy.pools.statuses[0] = endpoint(ONE, streams=max(0, status.streams - 1))
        return seen(status)

    seen, proxy.pools._seen = proxy.pools._seen, end_one
    proxy.pools.statuses[0] = endpoint(ONE, streams=4)
    status, drained, err = run("endpoints", "drain", ONE, "--wait", "--json")
    assert status == 0
    assert json.loads(drained)["data"][0]["state"] == "drained"
    lines = err.splitlines()
    assert lines[-1] == f"waiting for {ONE}: 0 streams"
    assert len(lines) >= 2


def test_a_wait_that_takes_too_long_fails_and_says_what_holds(run, proxy):
    status, _, err = run("endpoints", "drain", ONE, "--wait", "--timeout-s", "0")
    assert status == 1
    assert f"{ONE} still has 2 streams after 0 s" in err
    assert "stays drained" in err
    assert proxy.decisions.drained == {ONE}


def test_queues_are_a_table_or_json(succeeds):
    table = succeeds("queue")
    assert [line.split() for line in table.splitlines()] == [
        ["queue", "tenant", "weight", "running", "waiting", "share"],
        ["default/demo", "8", "of", "9", "31"],
        ["large", "1", "6", "30", "75.0%"],
        ["small[1]", "0.5", "2", "0", "25.0%"],
        ["and", "1", "more"],
    ]
    assert json.loads(succeeds("queue", "--json"))["data"][0]["capacity"] == 9


def test_weights_are_set_switched_and_rolled_back(succeeds):
    assert "75.0%" in succeeds("deployments")
    switched = json.loads(succeeds("deployments", "switch", "demo", "green", "--json"))
    assert [each["share"] for each in switched["data"]] == [0.0, 1.0]
    table = succeeds("deployments", "weights", "demo", "blue=9.5", "green=0.5")
    assert "95.0%" in table
    table = succeeds("deployments", "rollback", "demo")
    assert "100%" in table
    succeeds("deployments", "switch", "chat", "only")


def test_models_are_loaded_and_a_failed_endpoint_fails_the_command(run, succeeds, proxy):
    table = succeeds("models", "load", "demo", "--pool", "default")
    assert "ok" in table
    proxy.pools.failing = {TWO}
    status, table, _ = run("models", "unload", "demo")
    assert status == 1
    assert "out of memory" in table
    assert proxy.pools.calls == [("load", "demo", ("default",)), ("unload", "demo", ())]


def test_a_model_that_no_endpoint_can_load_is_one_line(fails, proxy):
    proxy.pools.failing = {ONE, TWO, OTHER}
    err = fails("models", "load", "none")
    assert "No endpoint could load the model 'none'" in err
    assert "out of memory" in err


def test_the_key_may_be_in_a_file_and_is_never_shown(succeeds, fails, proxy, monkeypatch, tmp_path):
    monkeypatch.delenv("ADMIN_KEY")
    err = fails("endpoints")
    assert "Set ADMIN_KEY, or give --key-file" in err
    file = tmp_path / "key"
    file.write_text(f"{proxy.admin}\n")
    succeeds("endpoints", "list", "--key-file", str(file))
    file.write_text(proxy.user)
    err = fails("endpoints", "list", "--key-file", str(file))
    assert "lacks the scope 'admin'" in err
    assert proxy.user not in err
    for wrong, said in (("", "is empty"), ("two words", "has no key")):
        file.write_text(wrong)
        assert said in fails("endpoints", "list", "--key-file", str(file))
    assert proxy.admin not in repr(AdminClient("http://a", key=proxy.admin))


CUT = httpx.RemoteProtocolError("Server disconnected without sending a response.")


@pytest.mark.parametrize(
    ("url", "error", "hint"),
    [
        ("http://a", CUT, "is it https? "),
        ("http://a", httpx.ReadError("reset"), "is it https? "),
        ("https://a", CUT, ""),
        ("http://a", httpx.ConnectError("refused"), ""),
    ],
)
def test_a_wrong_scheme_is_asked_about(url, error, hint):
    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    proxy = AdminClient(url, transport=httpx.MockTransport(fail))
    with pytest.raises(LaunchError) as raised:
        proxy.call("GET", "/admin/v1/endpoints")
    assert ("is it " in str(raised.value)) is bool(hint)
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("endpoints", "drain", "10.9.9.9:1"), "No pool has an endpoint '10.9.9.9:1'"),
        (("endpoints", "drain", ONE, "--timeout-s", "3"), "--timeout-s needs --wait"),
        (("endpoints", "list", "--url", "http://127.0.0.1:1"), "cannot be reached"),
        (("endpoints", "list", "--url", "ftp://a"), "cannot be reached"),
        (("endpoints", "list", "--ca-file", "/none.pem"), "cannot be used"),
        (("endpoints", "list", "--key-file", "/none.key"), "/none.key"),
        (("deployments", "weights", "demo", "blue"), "write NAME=WEIGHT"),
        (("deployments", "weights", "demo", "blue=many"), "write NAME=WEIGHT"),
        (("deployments", "weights", "demo", "blue=-1"), "Invalid value for 'weights.blue'"),
        (("models", "load", "a/b"), "unknown_url"),
    ],
)
def test_what_is_wrong_is_one_line(fails, arguments, said):
    err = fails(*arguments)
    assert said in err or (said == "unknown_url" and "cannot be operated" in err)


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"error": "no"}', b"{}"])
def test_another_server_is_named_as_such(content):
    status = 200 if content != b"{}" else 500
    respond = httpx.MockTransport(lambda _: httpx.Response(status, content=content))
    remote = AdminClient("http://other", transport=respond)
    if content == b'{"error": "no"}':
        assert remote.call("GET", "/x") == {"error": "no"}
        return
    with pytest.raises(LaunchError, match="is not a triton-openai proxy"):
        remote.call("GET", "/x")


def test_the_level_of_the_log_is_shown_and_changed(run, succeeds, fails, proxy):
    assert succeeds("log-level") == "info (LOG_LEVEL: info)\n"
    assert succeeds("log-level", "debug", "--for-s", "600").startswith("debug for ")
    assert json.loads(succeeds("log-level", "--json"))["level"] == "debug"
    assert proxy.applied == [LogLevel.DEBUG]
    assert "needs a level" in fails("log-level", "--for-s", "600")
    assert "'loud' is not one of" in run("log-level", "loud")[2]
