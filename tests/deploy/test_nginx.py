"""The nginx example: it parses, and a stream passes it as it comes."""

from __future__ import annotations

from typing import Any

import crossplane
import pytest

from proxy.api.openai import chat_socket
from proxy.settings import Settings
from tests.deploy.places import DOCKER

CONFIG = DOCKER / "nginx" / "nginx.conf"


def parsed(path: str) -> list[dict[str, Any]]:
    """Strict: an unknown directive, a wrong place or a wrong number of words is an error."""
    result = crossplane.parse(path, strict=True, single=True, comments=False)
    assert result["errors"] == []
    return result["config"][0]["parsed"]


def block(directives: list[dict[str, Any]], *path: str) -> list[dict[str, Any]]:
    """What stands under `http`, `server`, …; a location by its last word. The last of several."""
    for name in path:
        *_, directives = [
            each["block"]
            for each in directives
            if "block" in each and (each["directive"] == name or each["args"][-1:] == [name])
        ]
    return directives


def told(directives: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {each["directive"]: each["args"] for each in directives}


@pytest.fixture(scope="module")
def server() -> list[dict[str, Any]]:
    return block(parsed(str(CONFIG)), "http", "server")


def test_nginx_waits_longer_and_takes_as_much_as_the_proxy(server):
    fields, rules = Settings.model_fields, told(server)
    read_s = float(rules["proxy_read_timeout"][0].removesuffix("s"))
    assert read_s > fields["request_timeout_s"].default
    size_mb = float(rules["client_max_body_size"][0].removesuffix("m"))
    assert size_mb >= fields["max_request_size_mb"].default


def test_strangers_are_limited(server):
    rules, http = told(server), told(block(parsed(str(CONFIG)), "http"))
    zone = rules["limit_req"][0].removeprefix("zone=")
    assert any(f"zone={zone}:" in word for word in http["limit_req_zone"])
    assert any(f"zone={rules['limit_conn'][0]}:" in word for word in http["limit_conn_zone"])
    assert http["limit_req_zone"][0] == http["limit_conn_zone"][0] == "$binary_remote_addr"
    assert http["limit_req_status"] == http["limit_conn_status"] == ["429"]
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout"):
        assert 0 < float(rules[name][0].removesuffix("s")) <= 60, name
    assert http["server_tokens"] == ["off"]


def test_requests_are_taken_over_tls_only(server):
    rules = told(server)
    assert rules["listen"][-1] == "ssl"
    assert {"ssl_certificate", "ssl_certificate_key"} <= set(rules)
    assert set(rules["ssl_protocols"]) == {"TLSv1.2", "TLSv1.3"}
    plain, _ = (
        each["block"]
        for each in block(parsed(str(CONFIG)), "http")
        if each["directive"] == "server"
    )
    assert {each["directive"] for each in plain} == {"listen", "return"}
    assert told(plain)["return"] == ["308", "https://$host$request_uri"]


def test_the_websockets_are_upgraded(server):
    headers = [each["args"] for each in block(server, chat_socket.PATH)]
    assert ["Upgrade", "$http_upgrade"] in headers
    assert ["Connection", "upgrade"] in headers
