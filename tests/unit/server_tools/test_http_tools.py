"""HttpToolRunner over real sockets: results, refusals, addresses, and what must stay hidden."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

import pytest

from proxy.domain.server_tools import CallStatus, ServerTool, ToolResult
from proxy.server_tools.addresses import is_public
from proxy.server_tools.http_tools import HeaderSecrets, HttpToolRunner
from tests.fixtures.certificates import certificate, needs_openssl
from tests.fixtures.stack import HANG_S
from tests.fixtures.tool_server import ToolServer, running


@pytest.fixture(scope="module")
def shared() -> Iterator[ToolServer]:
    with running() as server:
        yield server


@pytest.fixture
def server(shared: ToolServer) -> ToolServer:
    shared.seen.clear()
    return shared


def tool(url: str, **fields) -> ServerTool:
    given = {"name": "t", "url": url, "method": "GET", "allow_private_addresses": True}
    return ServerTool(**given | fields)


def run(
    asked: ServerTool, arguments=None, *, tools: HttpToolRunner | None = None, timeout_s: float = 5
) -> ToolResult:
    tools = tools or HttpToolRunner(HeaderSecrets({}))
    return asyncio.run(tools.run(asked, arguments or {}, timeout_s=timeout_s))


def test_get_sends_scalars_in_the_query_beside_the_urls_own(server):
    arguments = {"city": "a b&c", "n": 3, "on": True, "none": None}
    assert run(tool(server.url("/weather?v=2")), arguments).status is CallStatus.OK
    path = server.seen[0][1]
    assert path.partition("?")[2] in (
        "v=2&city=a+b%26c&n=3&on=true",
        "v=2&city=a%20b%26c&n=3&on=true",
    )


@pytest.mark.parametrize("name", ["v", "V", "über"])
def test_the_models_arguments_never_override_parameters_of_the_url(server, name):
    result = run(tool(server.url("/weather?v=2&%C3%BCber=1&v=3")), {"city": "x", name: "mine"})
    assert (result.status, server.seen) == (CallStatus.INVALID_ARGUMENTS, [])
    assert repr(name) in result.text


@pytest.mark.parametrize(
    "charset", ["foo", "punycode", "idna", "zip", "rot13", "utf-7", "unicode_escape", "\x27"]
)
def test_an_unknown_or_costly_charset_is_read_as_utf_8(server, charset):
    """60,000 bytes of punycode would hold the event loop for seconds."""
    began = time.process_time()
    result = run(tool(server.url(f"/charset/{charset}")))
    assert result.status is CallStatus.OK
    assert result.text.endswith("aGrüße")
    assert time.process_time() - began < 2


def test_get_takes_no_nested_arguments(server):
    result = run(tool(server.url("/weather")), {"days": [1]})
    assert (result.status, server.seen) == (CallStatus.INVALID_ARGUMENTS, [])
    assert "'days'" in result.text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/text", CallStatus.OK, "Grüße"),
        ("/empty", CallStatus.OK, ""),
        ("/broken", CallStatus.FAILED, "status 503: the backend is down"),
        ("/nothing", CallStatus.FAILED, "status 404"),
        ("/moved", CallStatus.FAILED, "redirects (302)"),
        ("/picture", CallStatus.FAILED, "neither text nor JSON"),
        ("/zipped", CallStatus.FAILED, "compressed"),
        ("/large", CallStatus.TOO_LARGE, "larger than 65536 bytes"),
        ("/endless-head", CallStatus.FAILED, "cannot be reached"),
    ],
)
def test_each_answer_becomes_a_result_in_words(server, path, status, words):
    result = run(tool(server.url(path)))
    assert result.status is status
    assert words in result.text
    assert len(server.seen) == 1
    assert result.response_bytes < 200_000


@pytest.mark.parametrize("path", ["/slow", "/drip"])
def test_a_slow_tool_is_given_up_and_its_connection_closed(server, path):
    """Bytes that keep coming do not extend its time."""
    server.left.clear()
    result = run(tool(server.url(path)), timeout_s=0.2)
    assert result.status is CallStatus.TIMEOUT
    assert "within 0.2 s" in result.text
    assert server.left.wait(HANG_S)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0", "[::1]",
     "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b:1::7f00:1]", "[fec0::1]"],
)  # fmt: skip
def test_a_private_address_is_refused_by_default(server, host):
    result = run(tool(server.url("/weather", host), allow_private_addresses=False))
    assert (result.status, server.seen) == (CallStatus.REFUSED_ADDRESS, [])
    assert "127.0.0.1" not in result.text


class Names:
    """Resolves as it is told, another answer each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


def test_one_private_address_among_public_ones_is_enough_to_refuse(server):
    tools = HttpToolRunner(HeaderSecrets({}), Names(["8.8.8.8", "127.0.0.1"]))
    url = server.url("/weather", "evil.example")
    result = run(tool(url, allow_private_addresses=False), tools=tools)
    assert (result.status, server.seen) == (CallStatus.REFUSED_ADDRESS, [])


def test_a_name_is_resolved_once_a_call_so_it_cannot_be_bound_anew(server):
    """The second answer would lead elsewhere; the connection goes to what was checked."""
    names = Names(["127.0.0.1"], ["203.0.113.9"])
    tools, asked = HttpToolRunner(HeaderSecrets({}), names), ("tools.example", server.server_port)
    result = run(tool(server.url("/echo", "tools.example")), tools=tools)
    assert (result.status, names.asked) == (CallStatus.OK, [asked])
    assert server.seen[0][2]["host"] == f"tools.example:{server.server_port}"
    run(tool(server.url("/echo", "tools.example"), timeout_s=0.1), tools=tools, timeout_s=0.1)
    assert names.asked == [asked, asked], "each call resolves and checks anew"


def test_the_next_address_is_tried_where_the_first_does_not_answer(server):
    tools = HttpToolRunner(HeaderSecrets({}), Names(["127.0.0.2", "127.0.0.1"]))
    assert run(tool(server.url("/weather", "tools.example")), tools=tools).status is CallStatus.OK


def test_the_environments_proxies_are_not_used(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert run(tool(server.url("/weather"))).status is CallStatus.OK


def test_a_secret_goes_out_in_its_header_and_comes_back_nowhere(server):
    tools = HttpToolRunner(HeaderSecrets({"KEY": "s3cr3t-value", "ID": "s3cr3t"}))
    asked = tool(server.url("/echo"), headers={"Authorization": "Bearer ${KEY}", "X-Id": "${ID}"})
    result = run(asked, tools=tools)
    assert server.seen[0][2]["authorization"] == "Bearer s3cr3t-value"
    assert "s3cr3t" not in result.text
    assert "Bearer [secret]" in result.text
    assert "s3cr3t" not in repr((asked, tools, vars(tools)))


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch) -> Path:
    """The certificate of localhost, which the process trusts."""
    path, _ = certificate(tmp_path, "tools")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


@pytest.fixture
def names(trusted: Path) -> Iterator[list[str | None]]:
    """The server's port comes first, then the names that clients asked for."""
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, trusted.with_suffix(".key"))
    context.sni_callback = lambda sock, name, _: seen.append(name)
    with running(context) as server:
        seen.append(str(server.server_port))
        yield seen


def call_over_tls(host: str, port: str) -> ToolResult:
    tools = HttpToolRunner(HeaderSecrets({}), Names(["127.0.0.1"]))
    return run(tool(f"https://{host}:{port}/weather"), tools=tools)


@needs_openssl
def test_the_certificate_is_that_of_the_name(names):
    assert call_over_tls("localhost", names[0]).status is CallStatus.OK
    assert names[1:] == ["localhost"]
    assert call_over_tls("other.example", names[0]).status is CallStatus.FAILED


@needs_openssl
def test_a_certificate_that_nobody_knows_is_not_taken(names, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    assert call_over_tls("localhost", names[0]).status is CallStatus.FAILED


# IANA IPv4 and IPv6 Special-Purpose Address Registries, whether "globally reachable" or not, with
# multicast, and with the blocks that were given up (::/96, fec0::/10).
SPECIAL = [
    "0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32",
    "192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24", "192.31.196.0/24",
    "192.52.193.0/24", "192.88.99.0/24", "192.88.99.2/32", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "255.255.255.255/32", "::1/128", "::/128", "::/96", "64:ff9b:1::/48", "100::/64",
    "100:0:0:1::/64", "2001::/23", "2001::/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128",
    "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28",
    "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16",
    "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
]  # fmt: skip
METADATA = ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16",
            "fd00:ec2::254", "fd20:ce::254"]  # fmt: skip
PRIVATE = ["127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
           "0.0.0.0", "168.63.129.16", "192.0.0.192"]  # fmt: skip
PUBLIC_4 = ["8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.1",
            "168.63.129.15", "168.63.129.17", "192.0.1.1", "223.255.255.255"]  # fmt: skip
PUBLIC_6 = ["2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2a00::1",
            "2620:4f:8001::1", "3ffd::1"]  # fmt: skip


@pytest.mark.parametrize("network", SPECIAL)
def test_no_address_of_a_special_network_is_public(network):
    block = ip_network(network)
    middle = block[block.num_addresses // 2]
    for address in (block[0], block[-1], middle):
        assert not is_public(str(address)), address


@pytest.mark.parametrize("address", [*PUBLIC_4, *PUBLIC_6])
def test_an_ordinary_hosts_address_is_public(address):
    assert is_public(address)


def embedded(address: str) -> dict[str, str]:
    """IPv6 forms of an IPv4 address."""
    bits = int(IPv4Address(address))
    high, low = bits >> 16, bits & 0xFFFF
    flipped = bits ^ 0xFFFF_FFFF
    local_nat64 = int(IPv6Address("64:ff9b:1::"))
    return {
        "mapped": f"::ffff:{address}",
        "compatible": f"::{address}",
        "translated (SIIT)": f"::ffff:0:{address}",
        "NAT64": f"64:ff9b::{address}",
        "local NAT64, /48": str(IPv6Address(local_nat64 | high << 64 | low << 40)),
        "local NAT64, /96": f"64:ff9b:1::{address}",
        "6to4": f"2002:{high:x}:{low:x}::1",
        "Teredo's server": f"2001:0:{high:x}:{low:x}::",
        "Teredo's client": f"2001:0:102:304:0:0:{flipped >> 16:x}:{flipped & 0xFFFF:x}",
        "ISATAP": f"2606:4700::5efe:{address}",
        "ISATAP, global": f"2606:4700::200:5efe:{address}",
        "ISATAP, link-local": f"fe80::5efe:{address}",
    }


@pytest.mark.parametrize("address", PRIVATE)
@pytest.mark.parametrize("form", embedded("127.0.0.1"))
def test_no_ipv6_form_makes_an_ipv4_address_public(address, form):
    assert not is_public(embedded(address)[form])


@pytest.mark.parametrize("form", ["mapped", "NAT64", "ISATAP", "ISATAP, global"])
def test_a_form_that_a_network_may_really_use_is_as_public_as_its_address(form):
    assert is_public(embedded("8.8.8.8")[form])


ZONED = ["fe80::1%lo", "2606:4700::1111%eth0", "::1%1"]


@pytest.mark.parametrize("address", [*METADATA, *ZONED])
def test_a_clouds_metadata_and_an_address_with_a_zone_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f.1", "2130706433", "127.0.0.1:80"])
def test_what_is_no_address_is_not_taken_for_one(text):
    with pytest.raises(ValueError):  # noqa: PT011  # ipaddress says which text it was
        is_public(text)
